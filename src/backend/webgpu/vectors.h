#pragma once

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>

#include "backend/webgpu/builder.h"

/// Neighbouring elements, loaded and stored as vectors of up to four words. Kernels are written over
/// neighbours e = 0 .. count - 1, each in a statement of its own: arrays that are indexed would go to memory.
namespace weft::webgpu {

/// Elements of the dtype in one vector, when `count` neighbours are loaded.
int64_t vector_unit(DType dtype, int64_t count);

/// Statements `let <name>_0 = ...` for the `count` neighbours at element `at`, a multiple of the unit.
std::string load_vectors(Builder& builder, const Operand& operand, int64_t count, std::string_view at,
                         std::string_view name);

/// The bits of neighbour e, as u32, after load_vectors().
std::string bits_in_vectors(std::string_view name, DType dtype, int64_t count, int64_t e);

/// The vectors that hold `count` elements whose bits are bits(e).
std::vector<std::string> packed_vectors(DType dtype, int64_t count,
                                        const std::function<std::string(int64_t e)>& bits);

/// The WGSL type of one vector.
std::string vector_type(DType dtype, int64_t count);

/// Whether vectors of `count` neighbours in the innermost dim of a walk are aligned in operand k.
bool is_aligned(const Walk& walk, size_t k, DType dtype, int64_t count);

/// `builder.code` has `fn of_bits(w0: u32, w1: u32 ...) -> Result`, from the bits of the inputs' elements to
/// those of the outputs, r0, r1 ... Vectors where the layouts allow them and the adapter gains from them,
/// else one element after the other.
void map_bits(Context& context, Builder& builder, std::span<const Operand> inputs,
              std::span<const Operand> outputs);

}  // namespace weft::webgpu
