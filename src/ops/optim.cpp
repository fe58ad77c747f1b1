// `optim`: several steps of an optimiser on several parameters, torch.optim's formulas.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {

std::vector<Op> optim_rows();

namespace {

/// What an optimiser keeps of one parameter between steps: empty until first written.
struct State {
  Array first, second, third;
};

/// The call's attributes with the defaults of its kind.
class Options {
 public:
  explicit Options(const Attrs& attrs) : attrs_(attrs), lr(attrs.number("lr")) {}
  double number(std::string_view name, double fallback) const {
    return attrs_.has(name) ? attrs_.number(name) : fallback;
  }
  bool flag(std::string_view name, bool fallback) const {
    return attrs_.has(name) ? attrs_.flag(name) : fallback;
  }
  double required(std::string_view name) const {
    if (!attrs_.has(name))
      fail(ErrorKind::invalid, "[optim] kind '{}' needs the attribute '{}'", attrs_.text("kind"), name);
    return attrs_.number(name);
  }

 private:
  const Attrs& attrs_;

 public:
  const double lr;
};

Array mixed(const Array& state, const Array& x, double keep) {
  return state ? state * keep + x * (1 - keep) : x * (1 - keep);
}
Array with_decay(const Array& g, const Array& p, double decay) {
  return decay != 0 ? g + p * decay : g;
}
Array decayed(const Array& p, const Options& o, double decay) {
  return decay != 0 ? p * (1 - o.lr * decay) : p;
}

/// One step: the new parameter. `t` counts from 1.
using StepFunction = Array (*)(const Options&, State&, const Array& p, const Array& g, int64_t t);

Array sgd(const Options& o, State&, const Array& p, const Array& g, int64_t) {
  return p - with_decay(g, p, o.number("weight_decay", 0)) * o.lr;
}

template <bool nesterov>
Array momentum(const Options& o, State& state, const Array& p, const Array& gradient, int64_t) {
  const double keep = o.required("momentum");
  const Array g = with_decay(gradient, p, o.number("weight_decay", 0));
  state.first = state.first ? state.first * keep + g * (1 - o.number("dampening", 0)) : g;
  return p - (nesterov ? g + state.first * keep : state.first) * o.lr;
}

template <bool decoupled>
Array adam(const Options& o, State& state, const Array& before, const Array& gradient, int64_t t) {
  const double beta1 = o.number("beta1", 0.9), beta2 = o.number("beta2", 0.999);
  const double decay = o.number("weight_decay", decoupled ? 0.01 : 0), count = static_cast<double>(t);
  const Array p = decoupled ? decayed(before, o, decay) : before;
  const Array g = decoupled ? gradient : with_decay(gradient, p, decay);
  state.first = mixed(state.first, g, beta1);
  state.second = mixed(state.second, g * g, beta2);
  Array v = state.second;
  if (o.flag("amsgrad", false)) v = state.third = state.third ? call("maximum", {state.third, v}) : v;
  const Array denominator = sqrt(v) / std::sqrt(1 - std::pow(beta2, count)) + o.number("eps", 1e-8);
  return p - state.first / denominator * (o.lr / (1 - std::pow(beta1, count)));
}

Array rmsprop(const Options& o, State& state, const Array& p, const Array& gradient, int64_t) {
  const double alpha = o.number("alpha", 0.99), keep = o.number("momentum", 0);
  const Array g = with_decay(gradient, p, o.number("weight_decay", 0));
  Array v = state.first = mixed(state.first, g * g, alpha);
  if (o.flag("centered", false)) {
    state.second = mixed(state.second, g, alpha);
    v = v - state.second * state.second;
  }
  Array step = g / (sqrt(v) + o.number("eps", 1e-8));
  if (keep > 0) step = state.third = state.third ? state.third * keep + step : step;
  return p - step * o.lr;
}

Array adagrad(const Options& o, State& state, const Array& p, const Array& gradient, int64_t t) {
  const Array g = with_decay(gradient, p, o.number("weight_decay", 0));
  state.first = state.first ? state.first + g * g : g * g + o.number("initial_accumulator_value", 0);
  return p - g / (sqrt(state.first) + o.number("eps", 1e-10)) *
                 (o.lr / (1 + static_cast<double>(t - 1) * o.number("lr_decay", 0)));
}

Array lion(const Options& o, State& state, const Array& p, const Array& g, int64_t) {
  const Array direction = call("sign", {mixed(state.first, g, o.number("beta1", 0.9))});
  state.first = mixed(state.first, g, o.number("beta2", 0.99));
  return decayed(p, o, o.number("weight_decay", 0)) - direction * o.lr;
}

/// The nearest matrix with singular values about 1, by a quintic Newton-Schulz iteration on the wide
/// orientation.
Array orthogonalized(const Array& update, int64_t iterations) {
  const bool tall = update.shape(0) > update.shape(1);
  Array u = tall ? transpose(update, 0, 1) : update;
  const Array length = sqrt(call("sum", {u * u}));
  u = u / call("maximum", {length, scalar_like(length, 1e-7)});
  for (int64_t i = 0; i < iterations; ++i) {
    const Array a = matmul(u, transpose(u, 0, 1));
    u = u * 3.4445 + matmul(a * -4.7750 + matmul(a, a) * 2.0315, u);
  }
  return tall ? transpose(u, 0, 1) : u;
}

Array muon(const Options& o, State& state, const Array& p, const Array& g, int64_t) {
  if (p.ndim() != 2) fail(ErrorKind::invalid, "[optim] muon takes matrices, not {}", to_string(p.shape()));
  const double keep = o.number("momentum", 0.95);
  state.first = mixed(state.first, g, keep);
  const Array update = o.flag("nesterov", true) ? mixed(state.first, g, keep) : state.first;
  const double rows = static_cast<double>(p.shape(0)), columns = static_cast<double>(p.shape(1));
  const Array step = orthogonalized(update, static_cast<int64_t>(o.number("ns_steps", 5)));
  return decayed(p, o, o.number("weight_decay", 0)) -
         step * (o.lr * std::sqrt(std::max(1.0, rows / columns)));
}

StepFunction step_of(const std::string& kind) {
  constexpr std::pair<std::string_view, StepFunction> kinds[] = {
      {"sgd", sgd},
      {"sgd_momentum", momentum<false>},
      {"nesterov", momentum<true>},
      {"adam", adam<false>},
      {"adamw", adam<true>},
      {"rmsprop", rmsprop},
      {"adagrad", adagrad},
      {"lion", lion},
      {"muon", muon},
  };
  for (const auto& [name, step] : kinds)
    if (name == kind) return step;
  fail(ErrorKind::invalid, "[optim] there is no kind '{}'", kind);
}

std::vector<Array> optim(const OpCall& c) {
  const StepFunction step = step_of(c.attrs.text("kind"));
  const Options options(c.attrs);
  const int64_t steps = c.attrs.integer("steps"), count = c.attrs.integer("n_params");
  if (steps < 0 || count < 0 || static_cast<int64_t>(c.inputs.size()) != count * (steps + 1))
    fail(ErrorKind::invalid, "[optim] {} parameters and {} steps need {} inputs, {} were given", count, steps,
         count * (steps + 1), c.inputs.size());
  std::vector<Array> parameters;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    Array p = as(c.inputs[i], DType::f32);
    State state;
    for (int64_t t = 1; t <= steps; ++t)
      p = step(options, state, p, as(c.inputs[static_cast<size_t>(t * count) + i], DType::f32), t);
    parameters.push_back(as(p, c.inputs[i].dtype()));
  }
  return parameters;
}

}  // namespace

std::vector<Op> optim_rows() {
  std::vector<AttrSpec> attrs = {
      {"kind", {}, true}, {"steps", {}, true}, {"n_params", {}, true}, {"lr", {}, true}};
  for (const char* name :
       {"weight_decay", "momentum", "dampening", "nesterov", "beta1", "beta2", "eps", "amsgrad", "alpha",
        "centered", "lr_decay", "initial_accumulator_value", "ns_steps"})
    attrs.push_back({name});
  return {composed("optim", 1, -1, std::move(attrs), optim)};
}

}  // namespace weft
