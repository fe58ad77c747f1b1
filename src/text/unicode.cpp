#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <vector>

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace weft::unicode {
namespace {

constexpr char32_t kCodes = 0x110000;
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl",
    "No", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

// Hangul syllables are numbered: ((leading * 21) + vowel) * 28 + trailing (0 = none).
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

bool is_syllable(char32_t code) {
  return code >= kSyllables && code < kSyllables + kSyllableCount;
}

uint8_t combining_class(char32_t code) {
  if (code < 0x300) return 0;
  const auto found = std::ranges::lower_bound(kCombiningClasses, code, {}, &ValueRange::last);
  return found != kCombiningClasses.end() && found->first <= code ? found->value : 0;
}

const Decomposition* find(std::span<const Decomposition> table, char32_t code) {
  const auto found = std::ranges::lower_bound(table, code, {}, &Decomposition::code);
  return found != table.end() && found->code == code ? &*found : nullptr;
}

void decompose(char32_t code, bool compatible, std::u32string& out) {
  if (code < 0xA0) {
    out.push_back(code);
  } else if (is_syllable(code)) {
    const char32_t index = code - kSyllables;
    out.push_back(kLeading + index / (kVowelCount * kTrailingCount));
    out.push_back(kVowels + index / kTrailingCount % kVowelCount);
    if (index % kTrailingCount != 0) out.push_back(kTrailing + index % kTrailingCount);
  } else {
    const Decomposition* found = compatible ? find(kCompatible, code) : nullptr;
    if (!found) found = find(kCanonical, code);
    if (found)
      out.append(kDecompositionPool.data() + found->offset, found->length);
    else
      out.push_back(code);
  }
}

/// Marks of one letter in ascending order of their class.
void order_marks(std::u32string& codes) {
  for (size_t begin = 0; begin < codes.size();) {
    size_t end = begin;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    if (end - begin > 1)
      std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(begin),
                       codes.begin() + static_cast<ptrdiff_t>(end),
                       [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end + 1;
  }
}

/// 0 when the two do not compose.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels &&
      second < kVowels + kVowelCount)
    return kSyllables + ((first - kLeading) * kVowelCount + second - kVowels) * kTrailingCount;
  if (is_syllable(first) && (first - kSyllables) % kTrailingCount == 0 && second > kTrailing &&
      second < kTrailing + kTrailingCount)
    return first + second - kTrailing;
  const auto found =
      std::ranges::lower_bound(kCompositions, std::pair(first, second), {},
                               [](const Composition& row) { return std::pair(row.first, row.second); });
  const bool match = found != kCompositions.end() && found->first == first && found->second == second;
  return match ? found->composed : 0;
}

/// In place: a mark joins the last starter unless a mark of the same or a higher class is between them.
void compose(std::u32string& codes) {
  size_t size = 0, starter = std::u32string::npos;
  int last_class = -1;  // of the mark before; -1: the starter itself is before
  for (const char32_t code : codes) {
    const int mark_class = combining_class(code);
    if (starter != std::u32string::npos && last_class < mark_class) {
      if (const char32_t joined = composed(codes[starter], code)) {
        codes[starter] = joined;
        continue;
      }
    }
    if (mark_class == 0) starter = size;
    last_class = mark_class == 0 ? -1 : mark_class;
    codes[size++] = code;
  }
  codes.resize(size);
}

}  // namespace

std::optional<Categories> categories_named(std::string_view name) {
  Categories bits = 0;
  for (size_t i = 0; i < kCategoryNames.size(); ++i)
    if (kCategoryNames[i] == name || kCategoryNames[i].substr(0, 1) == name) bits |= 1U << i;
  return bits == 0 ? std::nullopt : std::optional(bits);
}

Categories category(char32_t code) {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> result(kCodes);
    for (size_t i = 0; i < kCategoryStarts.size(); ++i) {
      const char32_t end = i + 1 < kCategoryStarts.size() ? kCategoryStarts[i + 1].first : kCodes;
      std::fill(result.begin() + kCategoryStarts[i].first, result.begin() + end, kCategoryStarts[i].category);
    }
    return result;
  }();
  return code < kCodes ? 1U << table[code] : kUnassigned;
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 ||
         (code >= 0xA0 && (category(code) & kSeparator));
}

char32_t lower(char32_t code) {
  const auto found = std::ranges::lower_bound(kLowerRanges, code, {}, &LowerRange::last);
  if (found == kLowerRanges.end() || found->first > code || (code - found->first) % found->step != 0)
    return code;
  return code + static_cast<char32_t>(found->delta);
}

void append_lower(std::string& text, char32_t code) {
  utf8::append(text, lower(code));
  if (code == 0x130) utf8::append(text, 0x307);
}

char32_t base_letter(char32_t code) {
  std::u32string parts;
  decompose(code, false, parts);
  return parts.front();
}

std::string normalize(std::string_view valid_text, Form form) {
  if (std::ranges::all_of(valid_text, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return std::string(valid_text);
  std::u32string codes;
  codes.reserve(valid_text.size());
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  for (size_t pos = 0; pos < valid_text.size();) decompose(utf8::next(valid_text, pos), compatible, codes);
  order_marks(codes);
  if (form == Form::nfc || form == Form::nfkc) compose(codes);
  return utf8::encode(codes);
}

}  // namespace weft::unicode
