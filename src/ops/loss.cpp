// Losses, computed in f32. Reduced ones are f32 scalars; reduction "none" keeps the input's dtype.
#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {

std::vector<Op> optim_rows();  // optim.cpp

namespace {

Array f32(const Array& x) {
  return as(x, DType::f32);
}
Array maximum(const Array& x, double floor) {
  return call("maximum", {x, scalar_like(x, floor)});
}
Array is_zero(const Array& x) {
  return eq(x, scalar_like(x, 0));
}

/// `kept`: rows that count towards a mean; empty = all elements.
Array reduced(const OpCall& c, const Array& loss, const Array& kept = {}) {
  const std::string& reduction = c.attrs.text("reduction");
  if (reduction == "none") return as(loss, c.inputs[0].dtype());
  if (reduction == "sum") return call("sum", {loss});
  if (reduction == "mean")
    return kept ? call("sum", {loss}) / call("sum", {f32(kept)}) : call("mean", {loss});
  if (reduction == "batchmean" && c.op.name == "kl_div")
    return call("sum", {loss}) / static_cast<double>(loss.ndim() ? loss.shape(0) : 1);
  fail(ErrorKind::invalid, "[{}] there is no reduction '{}'", c.op.name, reduction);
}

/// -logp[target], smoothed; logp (n, classes, ...) or (classes), targets without the class dim.
Array picked_loss(const OpCall& c, const Array& logp, double smoothing) {
  const Array& targets = c.inputs[1];
  const int64_t classes = logp.ndim() == 1 ? 0 : 1;
  Shape expected = logp.shape();
  if (!expected.empty()) expected.erase(expected.begin() + classes);
  if (logp.ndim() < 1 || targets.shape() != expected)
    fail(ErrorKind::invalid, "[{}] targets {} do not fit {} without its class dim", c.op.name,
         to_string(targets.shape()), to_string(logp.shape()));
  // An ignored target need not be a class: class 0 is looked up instead, and the result dropped.
  const Array kept =
      call("ne", {targets, scalar_like(targets, static_cast<double>(c.attrs.integer("ignore_index")))});
  const Array safe = where(kept, targets, scalar_like(targets, 0));
  Array loss = -squeeze(call("gather", {logp, unsqueeze(safe, classes)}, {{"dim", classes}}), classes);
  if (smoothing != 0) loss = loss * (1 - smoothing) - mean(logp, {classes}) * smoothing;
  return reduced(c, where(kept, loss, scalar_like(loss, 0)), kept);
}

Array cross_entropy_form(const OpCall& c) {
  const Array logits = f32(c.inputs[0]);
  return picked_loss(c, call("log_softmax", {logits}, {{"dim", int64_t{logits.ndim() == 1 ? 0 : 1}}}),
                     c.attrs.number("label_smoothing"));
}

Array difference(const OpCall& c) {
  return f32(c.inputs[0]) - f32(c.inputs[1]);
}

Array smooth_l1_loss(const OpCall& c) {
  const double beta = c.attrs.number("beta");
  const Array d = abs(difference(c));
  if (beta == 0) return reduced(c, d);
  return reduced(c, where(lt(d, scalar_like(d, beta)), d * d * (0.5 / beta), d - 0.5 * beta));
}

/// log(p), at least -100, without a gradient where p = 0 (where 1/p would turn 0 into NaN).
Array clamped_log(const Array& p) {
  const Array zero = is_zero(p);
  return where(zero, scalar_like(p, -100), maximum(log(where(zero, scalar_like(p, 1), p)), -100));
}

Array bce(const OpCall& c) {
  const Array p = f32(c.inputs[0]), t = f32(c.inputs[1]);
  return reduced(c, -(t * clamped_log(p) + (1.0 - t) * clamped_log(1.0 - p)));
}

/// (1-t) x + w softplus(-x) with w = 1 + (pos_weight-1) t, without cancellation on either side of 0. At x = 0
/// the ties of the two maxima give half each and the logarithm nothing, which is the derivative.
Array logit_loss(const Array& x, const Array& t, const Array& pos_weight) {
  const Array rest = call("log1p", {exp(-abs(x))}), above = maximum(x, 0), below = maximum(-x, 0);
  if (!pos_weight) return (1.0 - t) * above + t * below + rest;
  return (1.0 - t) * above + pos_weight * t * below + ((pos_weight - 1.0) * t + 1.0) * rest;
}

Array bce_with_logits(const OpCall& c) {
  const Array pos_weight = c.inputs.size() > 2 && c.inputs[2] ? f32(c.inputs[2]) : Array();
  return reduced(c, logit_loss(f32(c.inputs[0]), f32(c.inputs[1]), pos_weight));
}

Array kl_div(const OpCall& c) {
  const Array logq = f32(c.inputs[0]), p = f32(c.inputs[1]), zero = is_zero(p);
  const Array safe = where(zero, scalar_like(p, 1), p);
  const Array loss = safe * (log(safe) - logq);
  return reduced(c, where(zero, scalar_like(loss, 0), loss));
}

Array focal_bce(const OpCall& c) {
  const Array x = f32(c.inputs[0]), t = f32(c.inputs[1]);
  const double gamma = c.attrs.number("gamma"), alpha = c.attrs.number("alpha");
  Array loss = logit_loss(x, t, {});
  if (gamma != 0) {
    const Array miss = call("sigmoid", {x}) * (1.0 - t) + call("sigmoid", {-x}) * t;  // 1 - pt
    const Array zero = is_zero(miss);  // a power below 1 has no gradient there
    const Array power = call("pow_scalar", {where(zero, scalar_like(x, 1), miss)}, {{"exponent", gamma}});
    loss = loss * where(zero, scalar_like(x, 0), power);
  }
  if (alpha >= 0) loss = loss * (t * alpha + (1.0 - t) * (1 - alpha));
  return reduced(c, loss);
}

}  // namespace

std::vector<Op> loss_ops() {
  const AttrSpec reduction = {"reduction", std::string("mean")}, ignore = {"ignore_index", int64_t{-100}};
  std::vector<Op> rows = {
      composed1("cross_entropy", 2, 2, {reduction, ignore, {"label_smoothing", 0.0}}, cross_entropy_form),
      composed1("nll_loss", 2, 2, {reduction, ignore},
                [](const OpCall& c) { return picked_loss(c, f32(c.inputs[0]), 0); }),
      composed1("mse_loss", 2, 2, {reduction},
                [](const OpCall& c) { return reduced(c, call("square", {difference(c)})); }),
      composed1("l1_loss", 2, 2, {reduction}, [](const OpCall& c) { return reduced(c, abs(difference(c))); }),
      composed1("smooth_l1_loss", 2, 2, {reduction, {"beta", 1.0}}, smooth_l1_loss),
      composed1("bce", 2, 2, {reduction}, bce),
      composed1("bce_with_logits", 2, 3, {reduction}, bce_with_logits),
      composed1("kl_div", 2, 2, {reduction}, kl_div),
      composed1("focal_bce", 2, 2, {reduction, {"gamma", 2.0}, {"alpha", 0.25}}, focal_bce),
  };
  for (Op& op : optim_rows()) rows.push_back(std::move(op));
  return rows;
}

}  // namespace weft
