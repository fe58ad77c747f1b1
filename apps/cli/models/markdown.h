#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

/// Colours a text that comes in pieces: headings, **bold**, `code` and fenced code. Without colours the text
/// stays as it is.
class Markdown {
 public:
  explicit Markdown(bool colour) : colour_(colour) {}
  std::string push(std::string_view text);
  std::string finish();

 private:
  enum class State { plain, bold, code, heading, fence };
  void mark(std::string& out);  ///< what a finished run of ` or * means
  void enter(State state, std::string& out);

  bool colour_;
  State state_ = State::plain;
  bool line_start_ = true;
  std::string run_;  ///< of equal marks, not yet understood
};

}  // namespace weft::cli
