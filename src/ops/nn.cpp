// Normalisation, written in other ops. Everything is computed in f32 and rounded to the input's dtype once.
#include <cmath>

#include "base/error.h"
#include "ops/shorthand.h"
#include "weft/grad.h"

namespace weft {
namespace {

Array f32(const Array& x) {
  return as(x, DType::f32);
}

/// Input i in f32, or an empty Array where it was left out.
Array optional(const OpCall& c, size_t i) {
  return i < c.inputs.size() && c.inputs[i] ? f32(c.inputs[i]) : Array();
}

// ---- Softmax. -----------------------------------------------------------------------------------

/// x minus its largest element along `dim`, a constant for gradients: softmax does not depend on it.
Array shifted(const Array& x, int64_t dim) {
  return x - stop_gradient(max(x, {dim}, true));
}

Array softmax(const OpCall& c, bool logarithm) {
  const Array& input = c.inputs[0];
  const Array x = input.ndim() == 0 ? reshape(f32(input), {1}) : f32(input);
  const int64_t dim = normalize_dim(c.op.name, c.attrs.integer("dim"), x.ndim());
  if (x.size() == 0) return input;
  const Array s = shifted(x, dim), e = exp(s), total = sum(e, {dim}, true);
  return as(reshape(logarithm ? s - log(total) : e / total, input.shape()), input.dtype());
}

// ---- Normalisation. -----------------------------------------------------------------------------

/// (x - mean) / sqrt(variance + eps) over `dims`; the variance from the differences, so that a large mean
/// does no harm.
Array standardized(const Array& x, const Ints& dims, double eps) {
  const Array d = x - mean(x, dims, true);
  return d * rsqrt(mean(d * d, dims, true) + eps);
}

Array scaled(Array y, const Array& weight, const Array& bias) {
  if (weight) y = y * weight;
  return bias ? y + bias : y;
}

/// The dims that layer_norm and rms_norm work over: the last normalized_ndim.
Ints last_dims(const OpCall& c) {
  const int64_t count = c.attrs.integer("normalized_ndim"), rank = static_cast<int64_t>(c.inputs[0].ndim());
  if (count < 1 || count > rank)
    fail(ErrorKind::invalid, "[{}] normalized_ndim is {} for an array of {} dims", c.op.name, count, rank);
  Ints dims;
  for (int64_t d = rank - count; d < rank; ++d) dims.push_back(d);
  return dims;
}

Array layer_norm_form(const OpCall& c) {
  const Array y = standardized(f32(c.inputs[0]), last_dims(c), c.attrs.number("eps"));
  return as(scaled(y, optional(c, 1), optional(c, 2)), c.inputs[0].dtype());
}

Array rms_norm_form(const OpCall& c) {
  const Array x = f32(c.inputs[0]);
  const Array y = x * rsqrt(mean(x * x, last_dims(c), true) + c.attrs.number("eps"));
  return as(scaled(y, optional(c, 1), {}), c.inputs[0].dtype());
}

/// A vector with one entry per channel, shaped to broadcast against x (n, channels, ...).
Array per_channel(const Array& v, const Array& x) {
  if (!v) return v;
  Shape shape(x.ndim() - 1, 1);
  shape[0] = v.size();
  return reshape(v, shape);
}

void check_channels(const OpCall& c) {
  if (c.inputs[0].ndim() < 2)
    fail(ErrorKind::invalid, "[{}] takes (n,channels,...), not {}", c.op.name,
         to_string(c.inputs[0].shape()));
}

Array group_norm(const OpCall& c) {
  check_channels(c);
  const Array x = f32(c.inputs[0]);
  const int64_t groups = c.attrs.integer("num_groups"), n = x.shape(0), channels = x.shape(1);
  if (groups < 1 || channels % groups != 0)
    fail(ErrorKind::invalid, "[group_norm] {} channels do not make {} groups", channels, groups);
  if (x.size() == 0) return c.inputs[0];
  const Array y = standardized(reshape(x, {n, groups, x.size() / (n * groups)}), {2}, c.attrs.number("eps"));
  return as(scaled(reshape(y, x.shape()), per_channel(optional(c, 1), x), per_channel(optional(c, 2), x)),
            c.inputs[0].dtype());
}

Array batch_norm(const OpCall& c) {
  check_channels(c);
  const Array x = f32(c.inputs[0]), weight = per_channel(optional(c, 3), x),
              bias = per_channel(optional(c, 4), x);
  const double eps = c.attrs.number("eps");
  if (c.attrs.flag("training")) {
    Ints dims = {0};
    for (size_t d = 2; d < x.ndim(); ++d) dims.push_back(static_cast<int64_t>(d));
    return as(scaled(standardized(x, dims, eps), weight, bias), c.inputs[0].dtype());
  }
  const Array average = per_channel(optional(c, 1), x), variance = per_channel(optional(c, 2), x);
  if (!average || !variance) fail(ErrorKind::invalid, "[batch_norm] needs mean and var unless training");
  return as(scaled((x - average) * rsqrt(variance + eps), weight, bias), c.inputs[0].dtype());
}

Array cosine_similarity(const OpCall& c) {
  const Shape shape = broadcast_shapes(c.op.name, c.inputs[0].shape(), c.inputs[1].shape());
  const int64_t dim = normalize_dim(c.op.name, c.attrs.integer("dim"), shape.size());
  const Array a = expand(f32(c.inputs[0]), shape), b = expand(f32(c.inputs[1]), shape);
  // The floor goes below the root: sqrt has no gradient at 0.
  const auto length = [&](const Array& x) {
    const Array squares = sum(x * x, {dim});
    return sqrt(call("maximum", {squares, scalar_like(squares, std::pow(c.attrs.number("eps"), 2))}));
  };
  return as(sum(a * b, {dim}) / (length(a) * length(b)), c.inputs[0].dtype());
}

}  // namespace

std::vector<Op> nn_ops() {
  const AttrSpec eps = {"eps", 1e-5}, normalized = {"normalized_ndim", int64_t{1}};
  return {
      composed1("softmax", 1, 1, {{"dim", {}, true}}, [](const OpCall& c) { return softmax(c, false); }),
      composed1("log_softmax", 1, 1, {{"dim", {}, true}}, [](const OpCall& c) { return softmax(c, true); }),
      composed1("layer_norm", 1, 3, {eps, normalized}, layer_norm_form),
      composed1("rms_norm", 1, 2, {eps, normalized}, rms_norm_form),
      composed1("group_norm", 1, 3, {{"num_groups", {}, true}, eps}, group_norm),
      composed1("batch_norm", 1, 5, {eps, {"training", false}}, batch_norm),
      composed1("cosine_similarity", 2, 2, {{"dim", int64_t{1}}, {"eps", 1e-8}}, cosine_similarity),
  };
}

}  // namespace weft
