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

/// Of elements of 1, 2, 4 or 8 bytes. Call hwy::FlushStream() before another thread may read.
void transpose_block(size_t bytes, const Transposition& block);

}  // namespace weft::cpu
