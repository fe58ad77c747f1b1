#include "llm/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "text/utf8.h"

namespace weft {
namespace {

/// Characters of as many bytes each.
void add_range(char32_t first, char32_t last, std::vector<Utf8Range>& out) {
  std::string low, high;
  utf8::append(low, first);
  utf8::append(high, last);
  // Where the lead of the two differs, all characters below it must be in the range.
  for (size_t rest = 1; rest < low.size(); ++rest) {
    const char32_t below = (char32_t{1} << (6 * rest)) - 1;
    if ((first & ~below) == (last & ~below)) continue;
    if ((first & below) != 0) {
      add_range(first, first | below, out);
      add_range((first | below) + 1, last, out);
      return;
    }
    if ((last & below) != below) {
      add_range(first, (last & ~below) - 1, out);
      add_range(last & ~below, last, out);
      return;
    }
  }
  Utf8Range range{.size = low.size()};
  for (size_t i = 0; i < low.size(); ++i)
    range.bytes[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  out.push_back(range);
}

}  // namespace

std::vector<Utf8Range> utf8_ranges(std::span<const std::pair<char32_t, char32_t>> ranges) {
  constexpr std::pair<char32_t, char32_t> kSizes[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
  std::vector<Utf8Range> result;
  for (const auto& [first, last] : ranges)
    for (const auto& [smallest, largest] : kSizes)
      if (first <= largest && last >= smallest)
        add_range(std::max(first, smallest), std::min(last, largest), result);
  return result;
}

}  // namespace weft
