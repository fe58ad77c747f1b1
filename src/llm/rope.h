#pragma once

#include <span>

#include "llm/config.h"
#include "weft/array.h"

namespace weft::llm {

/// cos and then sin of positions' angles for each element that turns, (positions, 2 dims), made in double on
/// the host. sin has the sign with which the other element of the pair counts.
struct RopeTable {
  int64_t dims = 0;
  bool neighbours = false;
  Array turns;

  Array cos() const;
  Array sin() const;
};

/// For positions 0 .. context - 1 of a text; `is_long`: of one that is longer than the original context.
RopeTable rope_table(const RopeConfig& rope, int64_t context, bool is_long, const Device& device);
/// For single positions, each in a text of a length of its own, on which "dynamic" frequencies depend.
RopeTable rope_table(const RopeConfig& rope, std::span<const int32_t> positions,
                     std::span<const int64_t> lengths, const Device& device);

/// x (n, heads, dim) turned by rows of a table (n, dims).
Array rotate(const Array& x, const RopeTable& rows);

}  // namespace weft::llm
