#pragma once

#include <limits>
#include <optional>

#include "weft/array.h"

/// Functions on arrays: what programs write by hand. docs/ops.md has all ops, which src/ops/op.h calls by
/// name. Dims may be negative: from the end. A function on two arrays broadcasts and promotes
/// (docs/dtypes.md).
namespace weft {

using Dims = std::vector<int64_t>;

Array as(const Array& x, DType dtype);  ///< converted; x itself if it has that dtype

// ---- Elementwise.

Array abs(const Array& x);
Array sign(const Array& x);
Array square(const Array& x);
Array sqrt(const Array& x);
Array rsqrt(const Array& x);
Array exp(const Array& x);
Array expm1(const Array& x);
Array log(const Array& x);
Array log1p(const Array& x);
Array sin(const Array& x);
Array cos(const Array& x);
Array tanh(const Array& x);
Array erf(const Array& x);
Array floor(const Array& x);
Array ceil(const Array& x);
Array round(const Array& x);  ///< half to even
Array sigmoid(const Array& x);
Array relu(const Array& x);
Array gelu(const Array& x);
Array silu(const Array& x);
Array softplus(const Array& x);
Array isnan(const Array& x);
Array isinf(const Array& x);
Array clamp(const Array& x, double low, double high);

Array pow(const Term& a, const Term& b);
Array maximum(const Term& a, const Term& b);
Array minimum(const Term& a, const Term& b);
Array floor_divide(const Term& a, const Term& b);
Array where(const Array& condition, const Term& a, const Term& b);  ///< a where true, b elsewhere

// ---- Reductions: over all elements, or over dims that are dropped unless keepdim. No dims: nothing happens.

Array sum(const Array& x);
Array sum(const Array& x, const Dims& dims, bool keepdim = false);
Array mean(const Array& x);
Array mean(const Array& x, const Dims& dims, bool keepdim = false);
Array max(const Array& x);
Array max(const Array& x, const Dims& dims, bool keepdim = false);
Array min(const Array& x);
Array min(const Array& x, const Dims& dims, bool keepdim = false);
Array all(const Array& x);
Array any(const Array& x);
Array logsumexp(const Array& x, const Dims& dims, bool keepdim = false);
Array argmax(const Array& x, int64_t dim, bool keepdim = false);  ///< i32, the first on ties
Array argmin(const Array& x, int64_t dim, bool keepdim = false);
Array cumsum(const Array& x, int64_t dim);

// ---- Shapes. Most are views: no element moves.

Array reshape(const Array& x, const Shape& shape);  ///< one size may be -1
Array permute(const Array& x, const Dims& dims);    ///< output dim i is input dim dims[i]
Array transpose(const Array& x, int64_t dim0, int64_t dim1);
Array expand(const Array& x, const Shape& shape);  ///< sizes of 1 are repeated; new dims come first
Array squeeze(const Array& x, int64_t dim);
Array unsqueeze(const Array& x, int64_t dim);
Array flip(const Array& x, const Dims& dims);
Array cat(std::vector<Array> parts, int64_t dim);
Array stack(std::vector<Array> parts, int64_t dim);
std::vector<Array> split(const Array& x, const std::vector<int64_t>& sizes, int64_t dim);
Array tril(const Array& x, int64_t diagonal = 0);
Array triu(const Array& x, int64_t diagonal = 0);

/// Python's start:stop:step.
struct Range {
  std::optional<int64_t> start = {}, stop = {};
  int64_t step = 1;
};
/// One range per leading dim: slice(x, {{1, 3}, {}, {.step = -1}}) is x[1:3, :, ::-1].
Array slice(const Array& x, const std::vector<Range>& ranges);

// ---- Indices are i32.

Array index_select(const Array& x, const Array& indices, int64_t dim);  ///< whole slices along a dim
Array gather(const Array& x, const Array& indices, int64_t dim);  ///< out[..i..] = x[..indices[..i..]..]
Array scatter_add(const Array& x, const Array& indices, const Array& values, int64_t dim);
Array embedding(const Array& table, const Array& indices);  ///< rows of a table
struct Sorted {
  Array values, indices;
};
Sorted sort(const Array& x, int64_t dim = -1, bool descending = false);  ///< stable
Sorted topk(const Array& x, int64_t k, int64_t dim = -1, bool largest = true);
Array argsort(const Array& x, int64_t dim = -1, bool descending = false);

// ---- Networks.

Array matmul(const Array& a, const Array& b);
Array linear(const Array& x, const Array& weight, const Array& bias = {});  ///< x weight^T + bias
Array einsum(const std::string& equation, std::vector<Array> inputs);
Array softmax(const Array& x, int64_t dim);
Array log_softmax(const Array& x, int64_t dim);
Array layer_norm(const Array& x, const Array& weight = {}, const Array& bias = {}, double eps = 1e-5);
Array rms_norm(const Array& x, const Array& weight = {}, double eps = 1e-5);
Array cross_entropy(const Array& logits, const Array& targets);  ///< mean; targets are classes, i32
Array mse_loss(const Array& x, const Array& target);             ///< mean

}  // namespace weft
