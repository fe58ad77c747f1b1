// The kernel `matmul`: batches of strided matrices, floats through gemm(), integers by plain loops.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/elementwise_run.h"
#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/halves.h"
#include "base/error.h"

namespace weft::cpu {

namespace {

thread_local Scratch scratch_c;

/// A batch of matrices as the dims of a kernel's operands describe it.
struct Batch {
  Shape shape;                                // leading dims
  std::vector<int64_t> a_strides, b_strides;  // of the leading dims
  int64_t m, n, k;
  GemmOperand a, b;  // the first matrices
  int64_t count() const { return element_count(shape); }

  /// Offsets in elements of matrix `index` of a and b.
  std::pair<int64_t, int64_t> offsets(int64_t index) const {
    int64_t of_a = 0, of_b = 0;
    for (size_t d = shape.size(); d-- > 0; index /= shape[d]) {
      of_a += index % shape[d] * a_strides[d];
      of_b += index % shape[d] * b_strides[d];
    }
    return {of_a, of_b};
  }

  GemmOperand matrix(const GemmOperand& first, int64_t offset) const {
    GemmOperand result = first;
    result.data += offset * static_cast<int64_t>(size_of(first.dtype));
    return result;
  }
};

Batch batch_of(const Tensor& a, const Tensor& b) {
  const Shape &a_shape = a.layout.shape, &b_shape = b.layout.shape;
  const size_t rank = a_shape.size();
  if (rank < 2 || b_shape.size() != rank || a_shape[rank - 1] != b_shape[rank - 2] ||
      !std::equal(a_shape.begin(), a_shape.end() - 2, b_shape.begin()))
    fail(ErrorKind::invalid,
         "[matmul] kernel got {} x {}, expected (..,m,k) x (..,k,n) with equal batch dims",
         to_string(a_shape), to_string(b_shape));
  const auto operand = [&](const Tensor& x) {
    return GemmOperand{x.data + x.layout.offset * static_cast<int64_t>(size_of(x.dtype)), x.dtype,
                       x.layout.strides[rank - 2], x.layout.strides[rank - 1]};
  };
  Batch batch{.shape{a_shape.begin(), a_shape.end() - 2},
              .a_strides{a.layout.strides.begin(), a.layout.strides.end() - 2},
              .b_strides{b.layout.strides.begin(), b.layout.strides.end() - 2},
              .m = a_shape[rank - 2],
              .n = b_shape[rank - 1],
              .k = a_shape[rank - 1],
              .a = operand(a),
              .b = operand(b)};
  // The same b for all (weights): the rows of a's matrices become one tall matrix if they are evenly spaced.
  while (!batch.shape.empty()) {
    const int64_t size = batch.shape.back();
    if (size != 1 && (batch.b_strides.back() != 0 ||
                      (batch.m != 1 && batch.a_strides.back() != batch.m * batch.a.row_stride)))
      break;
    if (size != 1 && batch.m == 1) batch.a.row_stride = batch.a_strides.back();
    batch.m *= size;
    batch.shape.pop_back();
    batch.a_strides.pop_back();
    batch.b_strides.pop_back();
  }
  return batch;
}

/// out (m, n) contiguous = a b, rounded to f16 or bf16.
void gemm_rounded(ThreadPool& pool, const Batch& batch, const GemmOperand& a, const GemmOperand& b,
                  uint16_t* out, DType dtype) {
  constexpr int64_t kPiece = 2048;  // at most 16 MiB of sums
  for (int64_t i = 0; i < batch.m; i += kPiece)
    for (int64_t j = 0; j < batch.n; j += kPiece) {
      const int64_t rows = std::min(kPiece, batch.m - i), columns = std::min(kPiece, batch.n - j);
      GemmOperand a_part = a, b_part = b;
      a_part.data = element(a, i, 0);
      b_part.data = element(b, 0, j);
      float* sums = scratch_c.floats(rows * columns);
      gemm(pool, rows, columns, batch.k, a_part, b_part, sums, columns, [&](const GemmBlock& block) {
        for (int64_t r = block.row; r < block.row + block.rows; ++r) {
          const float* from = sums + r * columns + block.column;
          uint16_t* to = out + (i + r) * batch.n + j + block.column;
          if (dtype == DType::f16)
            floats_to_halves(from, to, block.columns);
          else
            floats_to_bfloats(from, to, block.columns);
        }
      });
    }
}

/// Words are unsigned: signed integers wrap around as well.
template <typename Word>
void matmul_integers(ThreadPool& pool, const Batch& batch, Word* out) {
  const int64_t row_work = std::max<int64_t>(batch.n * batch.k, 1);
  pool.for_each(static_cast<size_t>(batch.count() * batch.m),
                static_cast<size_t>(ceil_div(1 << 16, row_work)), [&](size_t begin, size_t end) {
                  for (int64_t row = static_cast<int64_t>(begin); row < static_cast<int64_t>(end); ++row) {
                    const auto [of_a, of_b] = batch.offsets(row / batch.m);
                    const Word* a = reinterpret_cast<const Word*>(batch.a.data) + of_a +
                                    row % batch.m * batch.a.row_stride;
                    const Word* b = reinterpret_cast<const Word*>(batch.b.data) + of_b;
                    Word* to = out + row * batch.n;
                    std::fill_n(to, batch.n, Word{0});
                    for (int64_t p = 0; p < batch.k; ++p) {
                      const Word factor = a[p * batch.a.column_stride];
                      const Word* from = b + p * batch.b.row_stride;
                      for (int64_t j = 0; j < batch.n; ++j) to[j] += factor * from[j * batch.b.column_stride];
                    }
                  }
                });
}

/// one(i) for each matrix: over the batch when there is enough of it for an even share, or its matrices are
/// too small to be cut.
template <typename One>
void each_matrix(ThreadPool& pool, const Batch& batch, const One& one) {
  const int64_t work = std::max<int64_t>(batch.m * batch.n * batch.k, 1);
  if (batch.count() > 1 && (batch.count() >= int64_t{4} * pool.threads() || work < kParallelWork)) {
    const int64_t grain = std::min(ceil_div(kParallelWork / 8, work), batch.count());
    pool.for_each(static_cast<size_t>(batch.count()), static_cast<size_t>(grain),
                  [&](size_t begin, size_t end) {
                    for (size_t i = begin; i < end; ++i) one(static_cast<int64_t>(i));
                  });
  } else {
    for (int64_t i = 0; i < batch.count(); ++i) one(i);
  }
}

}  // namespace

void matmul_f32(ThreadPool& pool, const Tensor& a, const Tensor& b, const Tensor& out,
                const MatmulEpilogue& epilogue) {
  const Batch batch = batch_of(a, b);
  each_matrix(pool, batch, [&](int64_t index) {
    const auto [of_a, of_b] = batch.offsets(index);
    const int64_t first = index * batch.m * batch.n;
    GemmEpilogue each_block;
    if (epilogue)
      each_block = [&](const GemmBlock& block) {
        epilogue({first + block.row * batch.n + block.column, block.rows, block.columns, batch.n});
      };
    gemm(pool, batch.m, batch.n, batch.k, batch.matrix(batch.a, of_a), batch.matrix(batch.b, of_b),
         out.as<float>() + first, batch.n, each_block);
  });
}

void matmul(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Attrs&) {
  const Tensor &a = inputs[0], &b = inputs[1], &out = outputs[0];
  if (element_count(out.layout.shape) == 0) return;
  const Batch batch = batch_of(a, b);
  if (a.dtype == b.dtype && a.dtype == out.dtype) {
    if (a.dtype == DType::i64) return matmul_integers(pool, batch, out.as<uint64_t>());
    if (a.dtype == DType::i32 || a.dtype == DType::u32)
      return matmul_integers(pool, batch, out.as<uint32_t>());
  }
  if (!is_float(a.dtype) || !is_float(b.dtype) || !is_float(out.dtype))
    fail(ErrorKind::unsupported, "[matmul] no kernel for {} x {} -> {}", name_of(a.dtype), name_of(b.dtype),
         name_of(out.dtype));
  if (out.dtype == DType::f32) return matmul_f32(pool, a, b, out, {});
  each_matrix(pool, batch, [&](int64_t index) {
    const auto [of_a, of_b] = batch.offsets(index);
    gemm_rounded(pool, batch, batch.matrix(batch.a, of_a), batch.matrix(batch.b, of_b),
                 out.as<uint16_t>() + index * batch.m * batch.n, out.dtype);
  });
}

void matmul_with(ThreadPool& pool, const ElementwiseProgram& program, std::span<const Tensor> factors,
                 std::span<const Tensor> loads, std::span<const Tensor> outputs) {
  if (element_count(outputs[0].layout.shape) == 0) return;
  const Elementwise elementwise(program, loads, outputs);
  std::mutex mutex;
  std::vector<std::unique_ptr<Machine>> idle;  // as many as threads meet here
  matmul_f32(pool, factors[0], factors[1], loads[0], [&](const MatmulBlock& block) {
    std::unique_ptr<Machine> machine;
    {
      const std::scoped_lock lock(mutex);
      if (!idle.empty()) machine = std::move(idle.back()), idle.pop_back();
    }
    if (!machine) machine = std::make_unique<Machine>(elementwise.machine());
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t begin = block.first + row * block.stride;
      elementwise.run(*machine, begin, begin + block.columns);
    }
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(machine));
  });
}

}  // namespace weft::cpu
