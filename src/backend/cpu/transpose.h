#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::cpu {

/// Rows that lie side by side in the input and columns that do in the output; strides in elements.
struct Transposition {
  const void* from;
  void* to;
  int64_t from_stride, to_stride, rows, columns;
  bool is_streamed;  ///< past the caches: both `to` and to_stride are whole lines
  bool reads_ahead;  ///< of the processor
};

/// Whether the processor follows as many streams as a line has floats, so that it is best left alone: Intel's
/// do (4096 x 4096 of f32 run at 97 % of a copy's speed on a Xeon then, and at 49 to 88 % otherwise), AMD's
/// do not.
bool reads_ahead();

/// Of elements of 1, 2, 4 or 8 bytes. Call hwy::FlushStream() before another thread may read.
void transpose_block(size_t bytes, const Transposition& block);

}  // namespace weft::cpu
