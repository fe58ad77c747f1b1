#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

/// Looks for texts that end an answer, in a text that comes in pieces. What could be the beginning of one is
/// held back until it is known.
class StopFinder {
 public:
  explicit StopFinder(std::vector<std::string> stops);

  /// The text that certainly comes before any of them. After one was found: nothing more.
  std::string push(std::string_view text);
  std::string finish();  ///< what was held back
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace weft::llm
