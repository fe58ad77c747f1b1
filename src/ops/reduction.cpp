// Reductions and scans. Primitive rows (reduce_*, scan_*) are the kernels that backends have; the ops that
// users call are written in them.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/shorthand.h"
#include "weft/grad.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;
using Arrays = std::vector<Array>;

const std::vector<AttrSpec> kDims = {{"dims"}, {"keepdim", false}};

Shape reduced_shape(const Shape& from, const Ints& dims, bool keepdim) {
  Shape shape;
  size_t next = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const bool reduced = next < dims.size() && dims[next] == static_cast<int64_t>(i);
    if (reduced) ++next;
    if (!reduced)
      shape.push_back(from[i]);
    else if (keepdim)
      shape.push_back(1);
  }
  return shape;
}

/// How many elements one result is made of.
int64_t count_of(const Array& x, const Ints& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= x.shape(d);
  return count;
}

/// A result in the shape of what it was reduced from.
Array spread(const Array& y, const Array& x, const Ints& dims) {
  return expand(reshape(y, reduced_shape(x.shape(), dims, true)), x.shape());
}

Array scan(std::string_view kernel, const Array& x, int64_t dim, bool reverse, bool exclusive = false) {
  Attrs attrs = {{"dim", dim}, {"reverse", reverse}};
  if (exclusive) attrs.set("exclusive", true);
  return call(kernel, {x}, std::move(attrs));
}

/// x[k + step] along a dim, 0 past the end.
Array shifted(const Array& x, int64_t dim, int64_t step) {
  return pad_dim(x, dim, -step, step);
}

/// r[k] = b[k] + a[k] r[k+1], 0 past the end. Doubling: log2(n) rounds, and no division that zeros would
/// break.
Array recurrence(Array a, Array b, int64_t dim) {
  for (int64_t step = 1; step < b.shape(dim); step *= 2) {
    b = b + a * shifted(b, dim, step);
    a = a * shifted(a, dim, step);
  }
  return b;
}

Array nan_or_equal(const Array& x, const Array& y) {
  return call("logical_or", {eq(x, y), call("isnan", {x})});
}

// ---- Gradients. Each computes in f32 and rounds once.
// ----------------------------------------------------------

Arrays sum_gradient(const GradCall& c) {
  return {spread(c.output_grads[0], c.inputs[0], c.attrs.list("dims"))};
}

/// The product of all others = what is before times what is after.
Arrays prod_gradient(const GradCall& c) {
  const Ints& dims = c.attrs.list("dims");
  const Array x = as(c.inputs[0], DType::f32);
  Ints order, back(x.ndim());  // kept dims first, then the reduced ones
  for (size_t i = 0, next = 0; i < x.ndim(); ++i)
    if (next < dims.size() && dims[next] == static_cast<int64_t>(i))
      ++next;
    else
      order.push_back(static_cast<int64_t>(i));
  order.insert(order.end(), dims.begin(), dims.end());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);

  const Array moved = permute(x, order);
  Shape shape = c.outputs[0].shape();  // (kept.., n)
  const auto last = static_cast<int64_t>(shape.size());
  shape.push_back(count_of(x, dims));
  const Array flat = reshape(moved, shape);
  const Array others =
      scan("scan_cumprod", flat, last, false, true) * scan("scan_cumprod", flat, last, true, true);
  const Array g = spread(as(c.output_grads[0], DType::f32), x, dims);
  return {as(g * permute(reshape(others, moved.shape()), back), c.inputs[0].dtype())};
}

/// Elements that tie share the gradient.
Arrays extreme_gradient(const GradCall& c) {
  const Array& x = c.inputs[0];
  const Ints& dims = c.attrs.list("dims");
  const Array chosen = nan_or_equal(x, spread(c.outputs[0], x, dims));
  const Array ties = sum(as(chosen, DType::f32), dims, true);
  const Array share = reshape(as(c.output_grads[0], DType::f32), ties.shape()) / ties;
  return {as(where(chosen, share, scalar_like(share, 0)), x.dtype())};
}

Arrays cumsum_gradient(const GradCall& c) {
  return {scan("scan_cumsum", c.output_grads[0], c.attrs.integer("dim"), !c.attrs.flag("reverse"),
               c.attrs.flag("exclusive"))};
}

/// dx[k] = (product before k) * sum over i >= k of g[i] x[k+1] .. x[i].
Arrays cumprod_gradient(const GradCall& c) {
  const int64_t dim = c.attrs.integer("dim");
  const bool reverse = c.attrs.flag("reverse");
  Array x = as(c.inputs[0], DType::f32), g = as(c.output_grads[0], DType::f32);
  if (reverse) x = flip(x, {dim}), g = flip(g, {dim});
  if (c.attrs.flag("exclusive")) g = shifted(g, dim, 1);
  const Array dx = scan("scan_cumprod", x, dim, false, true) * recurrence(shifted(x, dim, 1), g, dim);
  return {as(reverse ? flip(dx, {dim}) : dx, c.inputs[0].dtype())};
}

/// Each gradient goes to the element that was the running extreme there: the last one that equals it.
Arrays running_extreme_gradient(const GradCall& c) {
  const Array& x = c.inputs[0];
  const int64_t dim = c.attrs.integer("dim"), n = x.shape(dim);
  const bool reverse = c.attrs.flag("reverse");
  Shape along(x.ndim(), 1);
  along[static_cast<size_t>(dim)] = n;
  const Array place = reshape(iota(n, x), along);
  const Array set =
      where(nan_or_equal(x, c.outputs[0]), place, scalar_like(place, reverse ? static_cast<double>(n) : -1));
  const Array source = scan(reverse ? "scan_cummin" : "scan_cummax", set, dim, reverse);
  const Array g = as(c.output_grads[0], DType::f32);
  return {as(call("scatter_add", {zeros_like(g), source, g}, {{"dim", dim}}), x.dtype())};
}

/// dx[j] = sum over i >= j of g[i] exp(x[j] - y[i]) = exp(x[j] - y[j]) r[j], r[j] = g[j] + exp(y[j] - y[j+1])
/// r[j+1]. No exponent is positive.
Arrays logcumsumexp_gradient(const GradCall& c) {
  const int64_t dim = c.attrs.integer("dim");
  const bool reverse = c.attrs.flag("reverse"), exact = c.inputs[0].dtype() == DType::f32;
  Array x = as(c.inputs[0], DType::f32), g = as(c.output_grads[0], DType::f32);
  Array y = exact ? c.outputs[0] : scan("scan_logcumsumexp", x, dim, reverse);
  if (reverse) x = flip(x, {dim}), g = flip(g, {dim}), y = flip(y, {dim});
  const auto ratio = [](const Array& a, const Array& b) {  // of equal infinities: 1
    const Array same = call("logical_and", {eq(a, b), call("isinf", {a})});
    return exp(where(same, scalar_like(a, 0), a - b));
  };
  const Array decay = ratio(slice_dim(y, dim, 0, -1), slice_dim(y, dim, 1, kNone));
  const Array dx = ratio(x, y) * (y.shape(dim) > 1 ? recurrence(pad_dim(decay, dim, 0, 1), g, dim) : g);
  return {as(reverse ? flip(dx, {dim}) : dx, c.inputs[0].dtype())};
}

// ---- Kernels.
// --------------------------------------------------------------------------------------------------

Op reduce_row(std::string name, Fold fold, Gradient gradient, bool to_bool = false) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .attrs = {{"dims", {}, true}},
          .infer = [to_bool](const OpCall& c) -> Specs {
            return {{reduced_shape(c.inputs[0].shape(), c.attrs.list("dims"), false),
                     to_bool ? DType::boolean : c.inputs[0].dtype()}};
          },
          .gradient = std::move(gradient),
          .fold = fold};
}

Op place_row(std::string name) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .attrs = {{"dim", {}, true}},
          .infer = [](const OpCall& c) -> Specs {
            return {{reduced_shape(c.inputs[0].shape(), {c.attrs.integer("dim")}, false), DType::i32}};
          }};
}

Op scan_row(std::string name, std::vector<AttrSpec> attrs, Gradient gradient) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .attrs = std::move(attrs),
          .infer = [](const OpCall& c) -> Specs { return {{c.inputs[0].shape(), c.inputs[0].dtype()}}; },
          .gradient = std::move(gradient)};
}

const std::vector<AttrSpec> kScan = {{"dim", {}, true}, {"reverse", false}};
const std::vector<AttrSpec> kScanExclusive = {{"dim", {}, true}, {"reverse", false}, {"exclusive", false}};

std::vector<Op> kernel_rows() {
  return {
      reduce_row("reduce_sum", Fold::sum, sum_gradient),
      reduce_row("reduce_prod", Fold::prod, prod_gradient),
      reduce_row("reduce_max", Fold::max, extreme_gradient),
      reduce_row("reduce_min", Fold::min, extreme_gradient),
      reduce_row("reduce_any", Fold::none, {}, true),
      reduce_row("reduce_all", Fold::none, {}, true),
      place_row("reduce_argmax"),
      place_row("reduce_argmin"),
      scan_row("scan_cumsum", kScanExclusive, cumsum_gradient),
      scan_row("scan_cumprod", kScanExclusive, cumprod_gradient),
      scan_row("scan_cummax", kScan, running_extreme_gradient),
      scan_row("scan_cummin", kScan, running_extreme_gradient),
      scan_row("scan_logcumsumexp", kScan, logcumsumexp_gradient),
  };
}

// ---- What users call.
// ------------------------------------------------------------------------------------------

void check_float(const OpCall& c) {
  if (!is_float(c.inputs[0].dtype()))
    fail(ErrorKind::invalid, "[{}] takes floats, not {}; convert with to_dtype", c.op.name,
         name_of(c.inputs[0].dtype()));
}

void check_number(const OpCall& c) {
  if (c.inputs[0].dtype() == DType::boolean)
    fail(ErrorKind::invalid, "[{}] takes numbers, not bool; convert with to_dtype", c.op.name);
}

void check_not_empty(const OpCall& c, const Ints& dims) {
  for (int64_t d : dims)
    if (c.inputs[0].shape(d) == 0)
      fail(ErrorKind::invalid, "[{}] dim {} of {} is empty: it has no extreme element", c.op.name, d,
           to_string(c.inputs[0].shape()));
}

/// sum prod max min any all: one kernel, then the shape.
Op reduction(std::string name, void (*check)(const OpCall&, const Ints&), bool to_bool = false) {
  return composed1(std::move(name), 1, 1, kDims, [check, to_bool](const OpCall& c) {
    const Ints dims = dims_of(c);
    check(c, dims);
    const Array& x = c.inputs[0];
    const Shape shape = reduced_shape(x.shape(), dims, c.attrs.flag("keepdim"));
    if (count_of(x, dims) == 1)
      return reshape(to_bool ? as(x, DType::boolean) : x, shape);  // nothing to fold
    return reshape(call("reduce_" + c.op.name, {x}, {{"dims", dims}}), shape);
  });
}

/// f16 and bf16 are computed in f32 and rounded once, at the end.
template <typename F>
Op in_f32(std::string name, std::vector<AttrSpec> attrs, F f) {
  return composed1(std::move(name), 1, 1, std::move(attrs), [f](const OpCall& c) {
    check_float(c);
    return as(f(c, as(c.inputs[0], DType::f32)), c.inputs[0].dtype());
  });
}

/// sqrt whose gradient at 0 is 0, as that of std and norm.
Array sqrt_or_zero(const Array& x) {
  const Array zero = eq(x, scalar_like(x, 0));
  return where(zero, scalar_like(x, 0), sqrt(where(zero, scalar_like(x, 1), x)));
}

Array variance(const OpCall& c, const Array& x) {
  const Ints dims = dims_of(c);
  const double divisor = static_cast<double>(count_of(x, dims)) - c.attrs.number("correction");
  const Array away = x - mean(x, dims, true);
  return sum(call("square", {away}), dims, c.attrs.flag("keepdim")) / std::max(divisor, 0.0);
}

Array logsumexp(const OpCall& c, const Array& x) {
  const Ints dims = dims_of(c);
  const bool keepdim = c.attrs.flag("keepdim");
  if (count_of(x, dims) == 0) return log(sum(x, dims, keepdim));  // of nothing: -inf
  // The shift changes nothing, so no gradient either; an infinite one would make NaN of inf - inf.
  const Array largest = stop_gradient(max(x, dims, true));
  const Array shift = where(call("isinf", {largest}), scalar_like(x, 0), largest);
  return log(sum(exp(x - shift), dims, keepdim)) + reshape(shift, reduced_shape(x.shape(), dims, keepdim));
}

Array norm(const OpCall& c, const Array& x) {
  const Ints dims = dims_of(c);
  const double p = c.attrs.number("p");
  const bool keepdim = c.attrs.flag("keepdim");
  if (p == 1) return sum(abs(x), dims, keepdim);
  if (p == 2) return sqrt_or_zero(sum(call("square", {x}), dims, keepdim));
  if (p != std::numeric_limits<double>::infinity())
    fail(ErrorKind::invalid, "[norm] p is 1, 2 or inf, not {}", p);
  check_not_empty(c, dims);
  return max(abs(x), dims, keepdim);
}

/// argmax argmin
Op place(std::string name) {
  return composed1(std::move(name), 1, 1, {{"dim"}, {"keepdim", false}}, [](const OpCall& c) {
    const Array& x = c.inputs[0];
    const std::string kernel = "reduce_" + c.op.name;
    const bool keepdim = c.attrs.flag("keepdim");
    const int64_t dim = c.attrs.has("dim")
                            ? normalize_dim(c.op.name, c.attrs.integer("dim"), std::max<size_t>(x.ndim(), 1))
                            : kNone;
    if (dim == kNone || x.ndim() == 0) {  // the index into the flattened array
      if (x.size() == 0)
        fail(ErrorKind::invalid, "[{}] the array of shape {} is empty: it has no extreme element", c.op.name,
             to_string(x.shape()));
      return reshape(call(kernel, {reshape(x, {x.size()})}, {{"dim", int64_t{0}}}),
                     keepdim ? Shape(x.ndim(), 1) : Shape{});
    }
    check_not_empty(c, {dim});
    return reshape(call(kernel, {x}, {{"dim", dim}}), reduced_shape(x.shape(), {dim}, keepdim));
  });
}

Op scan_op(std::string name, const std::vector<AttrSpec>& attrs, void (*check)(const OpCall&)) {
  return composed1(std::move(name), 1, 1, attrs, [check](const OpCall& c) {
    check(c);
    const Array& input = c.inputs[0];
    const Array x = input.ndim() == 0 ? reshape(input, {1}) : input;
    Attrs given = c.attrs;
    given.set("dim", normalize_dim(c.op.name, c.attrs.integer("dim"), x.ndim()));
    return reshape(call("scan_" + c.op.name, {x}, std::move(given)), input.shape());
  });
}

/// dx (x[i] + x[i+1]) / 2: areas between neighbours along a dim.
Array trapezoids(const OpCall& c, const Array& x, int64_t dim) {
  return (slice_dim(x, dim, 0, -1) + slice_dim(x, dim, 1, kNone)) * (c.attrs.number("dx") / 2);
}

std::vector<Op> user_rows() {
  const auto anything = [](const OpCall&, const Ints&) {};
  const auto numbers = [](const OpCall& c, const Ints&) { check_number(c); };
  const auto with_correction = [] {
    std::vector<AttrSpec> attrs = kDims;
    attrs.push_back({"correction", 1.0});
    return attrs;
  }();
  const auto with_p = [] {
    std::vector<AttrSpec> attrs = kDims;
    attrs.push_back({"p", 2.0});
    return attrs;
  }();
  const std::vector<AttrSpec> trapezoid_attrs = {{"dx", 1.0}, {"dim", int64_t{-1}}};
  return {
      reduction("sum", numbers),
      reduction("prod", numbers),
      reduction("max", check_not_empty),
      reduction("min", check_not_empty),
      reduction("any", anything, true),
      reduction("all", anything, true),
      in_f32("mean", kDims,
             [](const OpCall& c, const Array& x) {
               const Ints dims = dims_of(c);
               return sum(x, dims, c.attrs.flag("keepdim")) / static_cast<double>(count_of(x, dims));
             }),
      in_f32("var", with_correction, variance),
      in_f32("std", with_correction,
             [](const OpCall& c, const Array& x) { return sqrt_or_zero(variance(c, x)); }),
      in_f32("logsumexp", kDims, logsumexp),
      in_f32("norm", with_p, norm),
      place("argmax"),
      place("argmin"),
      scan_op("cumsum", kScanExclusive, check_number),
      scan_op("cumprod", kScanExclusive, check_number),
      scan_op("cummax", kScan, check_number),
      scan_op("cummin", kScan, check_number),
      scan_op("logcumsumexp", kScan, check_float),
      in_f32("trapezoid", trapezoid_attrs,
             [](const OpCall& c, const Array& x) {
               const int64_t dim = normalize_dim("trapezoid", c.attrs.integer("dim"), x.ndim());
               return sum(trapezoids(c, x, dim), {dim});
             }),
      in_f32("cumulative_trapezoid", trapezoid_attrs,
             [](const OpCall& c, const Array& x) {
               const int64_t dim = normalize_dim("cumulative_trapezoid", c.attrs.integer("dim"), x.ndim());
               return scan("scan_cumsum", trapezoids(c, x, dim), dim, false);
             }),
  };
}

}  // namespace

std::vector<Op> reduction_ops() {
  std::vector<Op> all;
  for (auto family : {kernel_rows, user_rows})
    for (Op& op : family()) all.push_back(std::move(op));
  return all;
}

}  // namespace weft
