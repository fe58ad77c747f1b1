#pragma once

#include "ops/op.h"
#include "weft/create.h"
#include "weft/ops.h"

/// Words that gradients and composed forms are written with.
namespace weft {

using Ints = std::vector<int64_t>;

/// x[..., start:stop:step, ...] along one dim.
Array slice_dim(const Array& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
/// Zeros (or `value`) before and after one dim; negative counts crop.
Array pad_dim(const Array& x, int64_t dim, int64_t before, int64_t after, double value = 0);

/// 0, 1, 2 ... of an i32 array on x's device.
Array iota(int64_t count, const Array& like);

constexpr bool is_half(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}
/// f16 and bf16 as f32, to be rounded once when all is done; other dtypes as they are.
inline Array widened(const Array& x) {
  return is_half(x.dtype()) ? as(x, DType::f32) : x;
}

inline Array eq(const Array& a, const Array& b) {
  return call("eq", {a, b});
}
inline Array lt(const Array& a, const Array& b) {
  return call("lt", {a, b});
}
inline Array gt(const Array& a, const Array& b) {
  return call("gt", {a, b});
}

/// A row for an op written in other ops.
Op composed(std::string name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs, Compose compose);
/// Same, for one result.
Op composed1(std::string name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs,
             std::function<Array(const OpCall&)> compose);

/// The attribute `dims` (absent = all), normalised and sorted.
Ints dims_of(const OpCall& call);

}  // namespace weft
