#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

/// Rows that lie side by side in the input and columns that do in the output; strides in elements.
struct Transposition {
  const void* from;
  void* to;
  int64_t from_stride, to_stride, rows, columns;
  bool is_streamed;      ///< past the caches: both `to` and to_stride are whole lines
  bool follows_streams;  ///< of the processor (processor.h)
};

/// Lines of the output that are written side by side: four of floats are 5 points of a copy's speed slower,
/// two of halves 10.
constexpr int64_t strip_lines(size_t bytes) {
  return bytes < 4 ? 4 : 2;
}

/// Of elements of 1, 2, 4 or 8 bytes. Call hwy::FlushStream() before another thread may read.
void transpose_block(size_t bytes, const Transposition& block);

}  // namespace weft::cpu
