// Movement ops that are written in views, cat and pad_constant. All keep any dtype.
#include <cmath>

#include "base/error.h"
#include "ops/shorthand.h"
#include "ops/slice.h"

namespace weft {
namespace {

Array flip_form(const OpCall& c) {
  const Array& x = c.inputs[0];
  const Ints dims = dims_of(c);
  if (dims.empty()) return x;
  Ints ends(x.ndim(), kNone), steps(x.ndim(), 1);
  for (int64_t d : dims) steps[static_cast<size_t>(d)] = -1;
  return call("slice", {x}, {{"starts", ends}, {"stops", ends}, {"steps", steps}});
}

// ---- pad
// -------------------------------------------------------------------------------------------------------

/// One dim, both sides, pads >= 0: mirrored without the edge itself.
Array reflect(const Array& x, int64_t dim, int64_t before, int64_t after) {
  const int64_t n = x.shape(dim);
  if (before >= n || after >= n)
    fail(ErrorKind::invalid, "[pad] reflecting {} and {} elements of dim {} needs more than its {}", before,
         after, dim, n);
  std::vector<Array> parts;
  if (before > 0) parts.push_back(flip(slice_dim(x, dim, 1, before + 1), {dim}));
  parts.push_back(x);
  if (after > 0) parts.push_back(flip(slice_dim(x, dim, n - 1 - after, n - 1), {dim}));
  return cat(std::move(parts), dim);
}

Array replicate(const Array& x, int64_t dim, int64_t before, int64_t after) {
  const int64_t n = x.shape(dim);
  if (n == 0)
    fail(ErrorKind::invalid, "[pad] dim {} of {} is empty: it has no edge to repeat", dim,
         to_string(x.shape()));
  const auto edge = [&](int64_t at, int64_t count) {
    Shape shape = x.shape();
    shape[static_cast<size_t>(dim)] = count;
    return expand(slice_dim(x, dim, at, at + 1), shape);
  };
  std::vector<Array> parts;
  if (before > 0) parts.push_back(edge(0, before));
  parts.push_back(x);
  if (after > 0) parts.push_back(edge(n - 1, after));
  return cat(std::move(parts), dim);
}

Array pad(const OpCall& c) {
  Array x = c.inputs[0];
  const Ints& pads = c.attrs.list("pads");  // lo0, hi0, lo1, hi1 ..
  const std::string& mode = c.attrs.text("mode");
  if (pads.size() != 2 * x.ndim())
    fail(ErrorKind::invalid, "[pad] {} pads for shape {}: two per dim are needed", pads.size(),
         to_string(x.shape()));
  if (mode == "constant") {
    Ints lo, hi;
    bool changes = false;
    for (size_t i = 0; i < x.ndim(); ++i) {
      lo.push_back(pads[2 * i]), hi.push_back(pads[2 * i + 1]);
      changes = changes || lo[i] != 0 || hi[i] != 0;
    }
    if (!changes) return x;
    const double value = c.attrs.number("value");
    if (!is_float(x.dtype()) && !std::isfinite(value))
      fail(ErrorKind::invalid, "[pad] {} is not a value of {}", value, name_of(x.dtype()));
    return call("pad_constant", {x}, {{"lo", lo}, {"hi", hi}, {"value", value}});
  }
  if (mode != "reflect" && mode != "replicate")
    fail(ErrorKind::invalid, "[pad] mode is constant, reflect or replicate, not {}", mode);
  for (size_t i = 0; i < x.ndim(); ++i) {
    const auto d = static_cast<int64_t>(i);
    const int64_t before = std::max<int64_t>(pads[2 * i], 0), after = std::max<int64_t>(pads[2 * i + 1], 0);
    const int64_t crop_lo = before - pads[2 * i], crop_hi = after - pads[2 * i + 1];
    if (before > 0 || after > 0)
      x = mode == "reflect" ? reflect(x, d, before, after) : replicate(x, d, before, after);
    if (crop_lo + crop_hi > x.shape(d))
      fail(ErrorKind::invalid, "[pad] dim {} of size {} cannot be cropped by {}", d, x.shape(d),
           crop_lo + crop_hi);
    if (crop_lo > 0 || crop_hi > 0) x = slice_dim(x, d, crop_lo, x.shape(d) - crop_hi);
  }
  return x;
}

// ---- The others.
// -----------------------------------------------------------------------------------------------

Array stack_form(const OpCall& c) {
  const int64_t dim = normalize_dim("stack", c.attrs.integer("dim"), c.inputs[0].ndim() + 1);
  std::vector<Array> parts;
  for (const Array& x : c.inputs) {
    if (x.shape() != c.inputs[0].shape())
      fail(ErrorKind::invalid, "[stack] shapes {} and {} differ", to_string(c.inputs[0].shape()),
           to_string(x.shape()));
    parts.push_back(unsqueeze(x, dim));
  }
  return cat(std::move(parts), dim);
}

std::vector<Array> split_form(const OpCall& c) {
  const Array& x = c.inputs[0];
  const int64_t dim = normalize_dim("split", c.attrs.integer("dim"), x.ndim());
  std::vector<Array> parts;
  int64_t at = 0;
  for (int64_t size : c.attrs.list("sizes")) {
    if (size < 0) fail(ErrorKind::invalid, "[split] a size is {}", size);
    parts.push_back(slice_dim(x, dim, at, at + size));
    at += size;
  }
  if (at != x.shape(dim))
    fail(ErrorKind::invalid, "[split] sizes add up to {}, dim {} has {}", at, dim, x.shape(dim));
  return parts;
}

/// Without dims: the elements in row-major order.
Array roll(const OpCall& c) {
  Array x = c.inputs[0];
  const bool flat = !c.attrs.has("dims");
  if (flat) x = reshape(x, {x.size()});
  const Ints& shifts = c.attrs.list("shifts");
  const Ints dims = flat ? Ints{0} : c.attrs.list("dims");
  if (shifts.size() != dims.size())
    fail(ErrorKind::invalid, "[roll] {} shifts for {} dims", shifts.size(), dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = normalize_dim("roll", dims[i], x.ndim()), n = x.shape(dim);
    const int64_t shift = n == 0 ? 0 : (shifts[i] % n + n) % n;
    if (shift != 0) x = cat({slice_dim(x, dim, n - shift, n), slice_dim(x, dim, 0, n - shift)}, dim);
  }
  return reshape(x, c.inputs[0].shape());
}

/// (a, b) seen as (1, a, 1, b), expanded to (r0, a, r1, b), and joined: (r0 a, r1 b).
Array repeat(const OpCall& c) {
  const Ints& repeats = c.attrs.list("repeats");
  Shape shape = c.inputs[0].shape();
  if (repeats.size() < shape.size())
    fail(ErrorKind::invalid, "[repeat] {} repeats for shape {}", repeats.size(), to_string(shape));
  shape.insert(shape.begin(), repeats.size() - shape.size(), 1);
  Shape apart, wide, joined;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (repeats[i] < 0) fail(ErrorKind::invalid, "[repeat] dim {} {} times", i, repeats[i]);
    apart.insert(apart.end(), {1, shape[i]});
    wide.insert(wide.end(), {repeats[i], shape[i]});
    joined.push_back(repeats[i] * shape[i]);
  }
  return reshape(expand(reshape(c.inputs[0], apart), wide), joined);
}

/// Without a dim: of the elements in row-major order.
Array repeat_interleave(const OpCall& c) {
  const bool flat = !c.attrs.has("dim");
  const Array x = flat ? reshape(c.inputs[0], {c.inputs[0].size()}) : c.inputs[0];
  const int64_t dim = flat ? 0 : normalize_dim("repeat_interleave", c.attrs.integer("dim"), x.ndim()),
                times = c.attrs.integer("repeats");
  if (times < 0) fail(ErrorKind::invalid, "[repeat_interleave] repeats is {}", times);
  Shape wide = x.shape(), joined = x.shape();
  wide.insert(wide.begin() + dim + 1, times);
  joined[static_cast<size_t>(dim)] *= times;
  return reshape(expand(unsqueeze(x, dim + 1), wide), joined);
}

/// tril, triu: linear, so the gradient is masked alike.
Op triangle(std::string name) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .attrs = {{"diagonal", int64_t{0}}},
          .infer = [](const OpCall& c) -> std::vector<OutputSpec> {
            if (c.inputs[0].ndim() < 2)
              fail(ErrorKind::invalid, "[{}] shape {} has no two dims", c.op.name,
                   to_string(c.inputs[0].shape()));
            return {{c.inputs[0].shape(), c.inputs[0].dtype()}};
          },
          .gradient = [](const GradCall& c) -> std::vector<Array> {
            return {call(c.op.name, {c.output_grads[0]}, c.attrs)};
          }};
}

}  // namespace

std::vector<Op> moved_rows() {
  return {
      composed1("pad", 1, 1, {{"pads", {}, true}, {"value", 0.0}, {"mode", std::string("constant")}}, pad),
      composed1("stack", 1, -1, {{"dim", {}, true}}, stack_form),
      composed("split", 1, 1, {{"sizes", {}, true}, {"dim", int64_t{0}}}, split_form),
      composed1("flip", 1, 1, {{"dims", {}, true}}, flip_form),
      composed1("roll", 1, 1, {{"shifts", {}, true}, {"dims"}}, roll),
      triangle("tril"),
      triangle("triu"),
      composed1("repeat", 1, 1, {{"repeats", {}, true}}, repeat),
      composed1("repeat_interleave", 1, 1, {{"repeats", {}, true}, {"dim"}}, repeat_interleave),
  };
}

}  // namespace weft
