#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Properties of characters and the four normal forms. The data is Unicode 15.1 (unicode_tables.cpp).
namespace weft::unicode {

/// A set of general categories, one bit each.
using Categories = uint32_t;

/// One category ("Lu"), or all that begin with a letter ("L"). nullopt when there is no such category.
std::optional<Categories> categories_named(std::string_view name);

constexpr Categories kOther = 0x1F, kLetter = 0x1F << 5, kMark = 7 << 10, kNumber = 7 << 13,
                     kPunctuation = 0x7F << 16, kSymbol = 0xF << 23, kSeparator = 7 << 27;
// Cn, Cc, Ll, Lt, Lu, Mn, Nd, Nl, Pc, Zs
constexpr Categories kUnassigned = 1 << 0, kControl = 1 << 1, kSmallLetter = 1 << 5, kTitleLetter = 1 << 8,
                     kCapitalLetter = 1 << 9, kNonspacingMark = 1 << 12, kDigit = 1 << 13,
                     kLetterNumber = 1 << 14, kConnector = 1 << 16, kSpaceSeparator = 1 << 29;

/// The bit of the one category that a character has.
Categories category(char32_t code);

inline bool is_letter(char32_t code) {
  return category(code) & kLetter;
}
inline bool is_mark(char32_t code) {
  return category(code) & kMark;
}
inline bool is_number(char32_t code) {
  return category(code) & kNumber;
}
inline bool is_punctuation(char32_t code) {
  return category(code) & kPunctuation;
}

bool is_space(char32_t code);  ///< White_Space

/// The small letter, or the character itself. U+0130 becomes i; append_lower keeps its dot.
char32_t lower(char32_t code);
void append_lower(std::string& text, char32_t code);

/// Canonical decomposition's first character: the letter without its accents.
char32_t base_letter(char32_t code);

enum class Form { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view valid_text, Form form);

}  // namespace weft::unicode
