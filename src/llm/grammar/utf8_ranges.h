#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weft {

struct ByteRange {
  uint8_t low, high;
  bool operator==(const ByteRange&) const = default;
};

/// All characters whose first byte is in the first range, whose second is in the second ...
struct Utf8Range {
  std::array<ByteRange, 4> bytes;
  size_t size;
};

/// Ranges of characters as ranges of bytes, in their order. Surrogates are left out. Two results begin with
/// the same range of bytes or with ranges that have no byte in common, and so on for the bytes behind it.
std::vector<Utf8Range> utf8_ranges(std::span<const std::pair<char32_t, char32_t>> ranges);

}  // namespace weft
