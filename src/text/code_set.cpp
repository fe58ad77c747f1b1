#include "text/code_set.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "text/unicode_tables.h"

namespace weft {
namespace {

constexpr char32_t kLast = 0x10FFFF;

/// Spellings vary: \p{Script=Han}, \p{script_Han}, [:Alpha:].
std::string folded(std::string_view name) {
  std::string result;
  for (char c : name)
    if (c != '_' && c != '-' && c != ' ') result.push_back(static_cast<char>(std::tolower(c)));
  for (std::string_view prefix : {"script=", "sc=", "gc=", "generalcategory=", "is"})
    if (result.starts_with(prefix)) return result.substr(prefix.size());
  return result;
}

}  // namespace

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    else
      ranges_.push_back(range);
  }
  for (const auto& [first, last] : ranges_)
    for (char32_t code = first; code <= std::min<char32_t>(last, 127); ++code)
      ascii_[code / 64] |= uint64_t{1} << code % 64;
}

CodeSet CodeSet::range(char32_t first, char32_t last) {
  return CodeSet({{first, last}});
}

CodeSet CodeSet::of_categories(unicode::Categories categories) {
  std::vector<Range> ranges;
  for (size_t i = 0; i < unicode::kCategoryStarts.size(); ++i) {
    const auto& [first, category] = unicode::kCategoryStarts[i];
    const char32_t next =
        i + 1 < unicode::kCategoryStarts.size() ? unicode::kCategoryStarts[i + 1].first : kLast + 1;
    if (categories >> category & 1) ranges.emplace_back(first, next - 1);
  }
  return CodeSet(std::move(ranges));
}

CodeSet CodeSet::spaces() {
  return of_categories(unicode::kSeparator) | range(9, 13) | range(0x85, 0x85);
}

CodeSet CodeSet::words() {
  // Circled and squared letters are symbols by category, and letters to \w.
  return of_categories(unicode::kLetter | unicode::kMark | unicode::kDigit | unicode::kLetterNumber |
                       unicode::kConnector) |
         range(0x24B6, 0x24E9) | range(0x1F130, 0x1F149) | range(0x1F150, 0x1F169) | range(0x1F170, 0x1F189);
}

CodeSet CodeSet::words_alone() {
  return words() | range(0xB2, 0xB3) | range(0xB9, 0xB9) | range(0xBC, 0xBE);
}

CodeSet CodeSet::of_property(size_t index) {
  std::vector<Range> ranges;
  for (const unicode::ValueRange& row : unicode::kPropertyRanges)
    if (row.value == index) ranges.emplace_back(row.first, row.last);
  return CodeSet(std::move(ranges));
}

bool CodeSet::named(std::string_view name, CodeSet& result) {
  if (const auto categories = unicode::categories_named(name)) {
    result = of_categories(*categories);
    return true;
  }
  std::string key = folded(name);
  for (const auto& [alias, property] :
       {std::pair("alpha", "alphabetic"), {"lower", "lowercase"}, {"upper", "uppercase"}})
    if (key == alias) key = property;
  for (size_t i = 0; i < unicode::kPropertyNames.size(); ++i)
    if (folded(unicode::kPropertyNames[i]) == key) {
      result = of_property(i);
      return true;
    }
  struct Named {
    std::string_view name;
    unicode::Categories categories;
  };
  using namespace unicode;
  const Named kinds[] = {{"letter", kLetter},
                         {"l&", kCapitalLetter | kSmallLetter | kTitleLetter},
                         {"lc", kCapitalLetter | kSmallLetter | kTitleLetter},
                         {"mark", kMark},
                         {"number", kNumber},
                         {"punctuation", kPunctuation},
                         {"symbol", kSymbol},
                         {"separator", kSeparator},
                         {"other", kOther},
                         {"digit", kDigit},
                         {"punct", kPunctuation | kSymbol},
                         {"cntrl", kControl}};
  if (const auto found = std::ranges::find(kinds, std::string_view(key), &Named::name);
      found != std::end(kinds)) {
    result = of_categories(found->categories);
    return true;
  }
  if (key == "space" || key == "whitespace") {
    result = spaces();
  } else if (key == "word") {
    result = words();
  } else if (key == "alnum") {
    named("alphabetic", result);
    result = result | of_categories(kDigit);
  } else if (key == "any") {
    result = range(0, kLast);
  } else if (key == "ascii") {
    result = range(0, 127);
  } else if (key == "blank") {
    result = range('\t', '\t') | of_categories(kSpaceSeparator);
  } else if (key == "xdigit") {
    result = range('0', '9') | range('a', 'f') | range('A', 'F');
  } else {
    return false;
  }
  return true;
}

CodeSet CodeSet::operator|(const CodeSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(ranges));
}

void CodeSet::Union::add(const CodeSet& set) {
  ranges_.insert(ranges_.end(), set.ranges_.begin(), set.ranges_.end());
  if (ranges_.size() < 2 * joined_ + 1000) return;
  ranges_ = CodeSet(std::move(ranges_)).ranges_;
  joined_ = ranges_.size();
}

CodeSet CodeSet::Union::take() {
  joined_ = 0;
  return CodeSet(std::exchange(ranges_, {}));
}

CodeSet CodeSet::operator~() const {
  std::vector<Range> ranges;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) ranges.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) ranges.emplace_back(next, kLast);
  return CodeSet(std::move(ranges));
}

CodeSet CodeSet::operator&(const CodeSet& other) const {
  return ~(~*this | ~other);
}

CodeSet CodeSet::any_case() const {
  std::vector<Range> ranges = ranges_;
  const auto pair = [&](char32_t capital, char32_t small) {
    if (contains(capital)) ranges.emplace_back(small, small);
    if (contains(small)) ranges.emplace_back(capital, capital);
  };
  for (const auto& [first, last, step, delta] : unicode::kLowerRanges)
    for (char32_t code = first; code <= last; code += step) pair(code, code + static_cast<char32_t>(delta));
  pair(0x17F, 's');  // the long s
  pair(0x17F, 'S');
  return CodeSet(std::move(ranges));
}

bool CodeSet::contains_beyond_ascii(char32_t code) const {
  const auto found = std::ranges::lower_bound(ranges_, code, {}, &Range::second);
  return found != ranges_.end() && found->first <= code;
}

}  // namespace weft
