#pragma once

#include "ops/op.h"
#include "weft/ops.h"

/// Words that gradients and composed forms are written with.
namespace weft {

using Ints = std::vector<int64_t>;

inline Array as(const Array& x, DType dtype) {
  return x.dtype() == dtype ? x : call("to_dtype", {x}, {{"dtype", std::string(name_of(dtype))}});
}
inline Array reshape(const Array& x, const Shape& shape) {
  return x.shape() == shape ? x : call("reshape", {x}, {{"shape", Ints(shape)}});
}
inline Array permute(const Array& x, const Ints& dims) {
  return call("permute", {x}, {{"dims", dims}});
}
inline Array transpose(const Array& x, int64_t a, int64_t b) {
  return call("transpose", {x}, {{"dim0", a}, {"dim1", b}});
}
inline Array expand(const Array& x, const Shape& shape) {
  return x.shape() == shape ? x : call("expand", {x}, {{"shape", Ints(shape)}});
}
inline Array unsqueeze(const Array& x, int64_t dim) {
  return call("unsqueeze", {x}, {{"dim", dim}});
}
inline Array squeeze(const Array& x, int64_t dim) {
  return call("squeeze", {x}, {{"dim", dim}});
}
/// x[..., start:stop:step, ...] along one dim.
Array slice_dim(const Array& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
inline Array cat(std::vector<Array> parts, int64_t dim) {
  return call("cat", std::move(parts), {{"dim", dim}});
}
/// Zeros (or `value`) before and after one dim; negative counts crop.
Array pad_dim(const Array& x, int64_t dim, int64_t before, int64_t after, double value = 0);

inline Array sum(const Array& x, const Ints& dims, bool keepdim = false) {
  return call("sum", {x}, {{"dims", dims}, {"keepdim", keepdim}});
}
inline Array mean(const Array& x, const Ints& dims, bool keepdim = false) {
  return call("mean", {x}, {{"dims", dims}, {"keepdim", keepdim}});
}
inline Array max(const Array& x, const Ints& dims, bool keepdim = false) {
  return call("max", {x}, {{"dims", dims}, {"keepdim", keepdim}});
}
inline Array where(const Array& condition, const Array& a, const Array& b) {
  return call("where", {condition, a, b});
}
inline Array exp(const Array& x) {
  return call("exp", {x});
}
inline Array log(const Array& x) {
  return call("log", {x});
}
inline Array sqrt(const Array& x) {
  return call("sqrt", {x});
}
inline Array abs(const Array& x) {
  return call("abs", {x});
}

/// Zeros of x's shape, dtype and device; takes no memory of that size.
inline Array zeros_like(const Array& x) {
  return expand(scalar_like(x, 0), x.shape());
}
/// 0, 1, 2 ... of an i32 array on x's device.
Array iota(int64_t count, const Array& like);

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
