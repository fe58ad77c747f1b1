#pragma once

#include "backend/webgpu/builder.h"
#include "quant/packing.h"

/// Packed weights where invocations are SIMD lanes of a CPU.
namespace weft::webgpu {

/// Rows of packed weights (n, k) that lie together, for neighbouring invocations. On a GPU they do unit by
/// unit, so that each loads 16 bytes. On a software adapter, where they are lanes of a vector and each pays
/// for each word that it loads, they do word by word: a vector of the same word of four rows is cheaper than
/// four words at four places. With the 32 rows of a subgroup together it reads from one end to the other, as
/// what fetches ahead expects it: 57, 57 and 51 tokens per second of SmolLM2 where 64 rows gave 41, 42
/// and 44.
inline int64_t packed_together(int64_t n) {
  const int64_t filled = (n + quant::kPackedRows - 1) / quant::kPackedRows * quant::kPackedRows;
  int64_t together = 2 * quant::kPackedRows;
  while (filled % together != 0) together /= 2;
  return together;
}

/// What interleaved.wgsl needs, itself, and `scales(rows, block)`.
void declare_interleaved(Context& context, Builder& builder, const Operand& packed,
                         const quant::Packing& packing);

}  // namespace weft::webgpu
