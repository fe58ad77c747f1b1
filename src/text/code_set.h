#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace weft {

/// A set of characters: ranges in ascending order that do not touch, and a bitmap for ASCII.
class CodeSet {
 public:
  CodeSet() = default;
  static CodeSet range(char32_t first, char32_t last);
  static CodeSet of_categories(unicode::Categories categories);
  static CodeSet spaces();  ///< \s
  static CodeSet words();   ///< \w inside brackets
  /// \w alone, and what \b looks at: Oniguruma has a table of its own for Latin-1 there, in which superscript
  /// digits and fractions belong to words.
  static CodeSet words_alone();
  /// A category, a script, a property or a POSIX class by its name in \p{...} or [:...:]; false when there is
  /// none.
  static bool named(std::string_view name, CodeSet& result);

  CodeSet operator|(const CodeSet& other) const;
  CodeSet operator&(const CodeSet& other) const;
  CodeSet operator~() const;
  CodeSet any_case() const;  ///< with the other case of every letter

  bool contains(char32_t code) const {
    return code < 128 ? ascii_[code / 64] >> code % 64 & 1 : contains_beyond_ascii(code);
  }
  std::span<const std::pair<char32_t, char32_t>> ranges() const { return ranges_; }
  bool operator==(const CodeSet&) const = default;

  /// The union of many sets, put together in time that grows with their number, not with its square.
  class Union {
   public:
    void add(const CodeSet& set);
    CodeSet take();  ///< and begins again

   private:
    std::vector<std::pair<char32_t, char32_t>> ranges_;
    size_t joined_ = 0;  // of ranges_, when they last did not touch
  };

 private:
  using Range = std::pair<char32_t, char32_t>;
  explicit CodeSet(std::vector<Range> ranges);
  static CodeSet of_property(size_t index);  ///< of unicode::kPropertyNames
  bool contains_beyond_ascii(char32_t code) const;

  std::vector<Range> ranges_;
  std::array<uint64_t, 2> ascii_ = {};
};

}  // namespace weft
