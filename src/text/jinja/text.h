#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

/// Valid UTF-8 that remembers, run by run, whether it is the template's own (trusted) or came from outside.
class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted) { append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);  ///< bytes begin .. end - 1 of another text
  Text part(size_t begin, size_t end) const;

  /// f(bytes, trusted) for each run, in order.
  template <typename F>
  void each_run(const F& f) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      f(std::string_view(bytes_).substr(begin, run.end - begin), run.trusted);
      begin = run.end;
    }
  }

  /// f(character, trusted) for each character, as a piece of UTF-8.
  template <typename F>
  void each_character(const F& f) const {
    each_run([&](std::string_view bytes, bool trusted) {
      for (size_t begin = 0, end = 0; begin < bytes.size(); begin = end) {
        end = next(bytes, begin);
        f(bytes.substr(begin, end - begin), trusted);
      }
    });
  }

 private:
  struct Run {
    size_t end;
    bool trusted;  // neighbours differ
  };
  static size_t next(std::string_view bytes, size_t begin);

  std::string bytes_;
  std::vector<Run> runs_;
};

size_t character_count(std::string_view text);
/// Where character `index` begins; the end of the text when there are fewer.
size_t byte_offset(std::string_view text, size_t index);

}  // namespace weft::jinja
