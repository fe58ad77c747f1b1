#include "ops/shorthand.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace weft {

Array scalar_like(const Array& x, double value) {
  return call("constant", {}, {{"value", value}, {"dtype", std::string(name_of(x.dtype()))}}, x.device());
}

Array unbroadcast(const Array& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  // A gradient that is itself a broadcast constant.
  if (grad.ndim() < shape.size() || (grad.size() > 0 && grad.size() < element_count(shape)))
    return expand(grad, shape);
  const size_t added = grad.ndim() - shape.size();
  Ints dims(added);
  std::iota(dims.begin(), dims.end(), 0);
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == 1 && grad.shape()[added + i] != 1) dims.push_back(static_cast<int64_t>(added + i));
  return reshape(sum(widened(grad), dims), shape);
}

Array slice_dim(const Array& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  const auto d = static_cast<size_t>(normalize_dim("slice", dim, x.ndim()));
  Ints starts(d + 1, kNone), stops(d + 1, kNone), steps(d + 1, 1);
  starts[d] = start, stops[d] = stop, steps[d] = step;
  return call("slice", {x}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
}

Array pad_dim(const Array& x, int64_t dim, int64_t before, int64_t after, double value) {
  if (before == 0 && after == 0) return x;
  Ints pads(2 * x.ndim(), 0);
  const auto d = static_cast<size_t>(normalize_dim("pad", dim, x.ndim()));
  pads[2 * d] = before, pads[2 * d + 1] = after;
  return call("pad", {x}, {{"pads", pads}, {"value", value}});
}

Array iota(int64_t count, const Array& like) {
  return call("arange", {}, {{"stop", count}, {"dtype", std::string("i32")}}, like.device());
}

Op composed(std::string name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs, Compose compose) {
  return {.name = std::move(name),
          .kind = OpKind::composed,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .attrs = std::move(attrs),
          .compose = std::move(compose)};
}

Op composed1(std::string name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs,
             std::function<Array(const OpCall&)> f) {
  return composed(std::move(name), min_inputs, max_inputs, std::move(attrs),
                  [f = std::move(f)](const OpCall& c) { return std::vector<Array>{f(c)}; });
}

Ints dims_of(const OpCall& call) {
  const size_t rank = call.inputs[0].ndim();
  Ints dims;
  if (!call.attrs.has("dims")) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
    return dims;
  }
  for (int64_t d : call.attrs.list("dims"))
    dims.push_back(normalize_dim(call.op.name, d, std::max<size_t>(rank, 1)));
  if (rank == 0) return {};  // dim 0 of a scalar is itself
  std::ranges::sort(dims);
  if (std::ranges::adjacent_find(dims) != dims.end())
    fail(ErrorKind::invalid, "[{}] a dim is named twice", call.op.name);
  return dims;
}

}  // namespace weft
