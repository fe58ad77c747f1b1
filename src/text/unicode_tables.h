#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// What tools/unicode_tables.py writes. Every table is in ascending order of its first member.
namespace weft::unicode {

struct CategoryStart {
  char32_t first;    ///< up to the next entry
  uint8_t category;  ///< a Category
};

/// first, first + step, ... last become small letters by adding delta.
struct LowerRange {
  char32_t first, last;
  uint8_t step;
  int32_t delta;
};

struct ValueRange {
  char32_t first, last;
  uint8_t value;
};

/// The full decomposition of a character: so many characters of the pool. Hangul syllables are not listed.
struct Decomposition {
  char32_t code;
  uint16_t offset;
  uint8_t length;
};

struct Composition {
  char32_t first, second, composed;
};

extern const std::span<const CategoryStart> kCategoryStarts;
extern const std::span<const LowerRange> kLowerRanges;
extern const std::span<const ValueRange> kPropertyRanges;  ///< value: an index of kPropertyNames
extern const std::span<const ValueRange> kCombiningClasses;
extern const std::span<const Decomposition> kCanonical;
extern const std::span<const Decomposition> kCompatible;  ///< where it differs from the canonical one
extern const std::span<const Composition> kCompositions;
extern const std::span<const char32_t> kDecompositionPool;
extern const std::span<const std::string_view> kPropertyNames;  ///< scripts and properties

}  // namespace weft::unicode
