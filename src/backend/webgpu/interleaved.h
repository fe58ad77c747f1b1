#pragma once

#include "backend/webgpu/builder.h"
#include "quant/packing.h"

/// Packed weights where invocations are SIMD lanes of a CPU.
namespace weft::webgpu {

/// Rows of packed weights that are interleaved. On a software adapter every lane pays for each word that it
/// loads, and a vector of the same word of four rows is cheaper than four words at four places.
inline int64_t packed_together(const Context& context) {
  return context.software ? quant::kPackedRows : 1;
}

/// What interleaved.wgsl needs, itself, and `scales(row, block)`.
void declare_interleaved(Context& context, Builder& builder, const Operand& packed,
                         const quant::Packing& packing);

}  // namespace weft::webgpu
