#pragma once

#include "backend/cpu/kernel.h"

namespace weft::cpu {

/// A matrix in f32, f16 or bf16: element (i, j) is data[i * row_stride + j * column_stride], counted in
/// elements. Strides may be 0 or negative; `data` points at element (0, 0).
struct GemmOperand {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0, column_stride = 0;
};

/// A part of a matrix.
struct GemmBlock {
  int64_t row, column, rows, columns;
};

/// Is called once for each block of c when it is complete, while it is in the cache, and may change it: bias,
/// activation, conversion. Blocks do not overlap; several threads call at once.
using GemmEpilogue = std::function<void(const GemmBlock& block)>;

/// c = a b with a (m, k), b (k, n) and c (m, n), whose rows are c_stride elements apart. Products are summed
/// in f32; k = 0 gives zeros. The result does not depend on the number of threads.
void gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
          float* c, int64_t c_stride, const GemmEpilogue& epilogue = {});

/// Writes a block of b (rows are k) as the product needs it: in panels of `width` columns, each (rows,
/// width); the last panel is filled up with 0.
using GemmPack = std::function<void(const GemmBlock& block, int64_t width, float* out)>;

/// The same with a b that is only ever seen block by block. Several threads pack at once.
void gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmPack& pack_b,
          float* c, int64_t c_stride, const GemmEpilogue& epilogue = {});

/// Is called for each block of a product when it is complete: its first element in row-major order of the
/// whole output; rows are `stride` apart.
struct MatmulBlock {
  int64_t first, rows, columns, stride;
};
using MatmulEpilogue = std::function<void(const MatmulBlock& block)>;

/// out f32, contiguous = a b, as the kernel below.
void matmul_f32(ThreadPool& pool, const Tensor& a, const Tensor& b, const Tensor& out,
                const MatmulEpilogue& epilogue);

/// The kernel `matmul`: a (.., m, k) and b (.., k, n) with equal batch dims (expanded by strides) give
/// (.., m, n). Floats are summed in f32 and rounded once to the output's type; i32 and u32 wrap around.
void matmul(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            const Attrs& attrs);

}  // namespace weft::cpu
