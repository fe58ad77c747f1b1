#include "plan/eval.h"

#include <doctest/doctest.h>

#include <cmath>

#include "backend/backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/grad.h"

using namespace weft;

namespace {

/// Kernels that `make` takes.
template <typename Make>
uint64_t steps_of(Make make) {
  const uint64_t before = eval_counters().steps;
  eval(make());
  return eval_counters().steps - before;
}

const Array& sample() {
  static const Array x = Array::from_vector({0.5f, -1.0f, 2.0f, 0.25f, -0.75f, 1.5f}, {2, 3});
  return x;
}

}  // namespace

TEST_SUITE("base: eval") {
  TEST_CASE("nothing runs before it is asked for, and nothing twice") {
    const uint64_t before = eval_counters().steps;
    const Array y = exp(sample()) * 2.0;
    CHECK(eval_counters().steps == before);
    const std::vector<float> values = y.to_vector();
    CHECK(eval_counters().steps == before + 1);
    CHECK(values[0] == doctest::Approx(2 * std::exp(0.5)));
    y.to_vector();
    CHECK(eval_counters().steps == before + 1);
  }

  TEST_CASE("a chain of ten elementwise ops is one kernel") {
    CHECK(steps_of([] {
            Array x = sample();
            for (int i = 0; i < 10; ++i) x = call("tanh", {x * 1.5 + 0.1});
            return x;
          }) == 1);
    // Broadcasting joins in, and so does a value that two ops of the chain need.
    const Array row = Array::from_vector({1, 2, 3}, {3});
    CHECK(steps_of([&] { return (sample() + row) * row - 1.0; }) == 1);
    CHECK(steps_of([&] {
            const Array shared = exp(sample());
            return shared * call("sin", {shared});
          }) == 1);
  }

  TEST_CASE("views cost nothing") {
    CHECK(steps_of([] { return transpose(slice_dim(sample(), 1, kNone, kNone, -1), 0, 1); }) == 0);
    CHECK(transpose(sample(), 0, 1).to_vector() ==
          std::vector<float>{0.5f, 0.25f, -1.0f, -0.75f, 2.0f, 1.5f});
    CHECK(slice_dim(sample(), 1, kNone, kNone, -2).to_vector() ==
          std::vector<float>{2.0f, 0.5f, 1.5f, 0.25f});
    CHECK(reshape(transpose(sample(), 0, 1), {6}).to_vector() ==
          std::vector<float>{0.5f, 0.25f, -1.0f, -0.75f, 2.0f, 1.5f});
  }

  TEST_CASE("long chains neither overflow the stack nor grow memory") {
    const Device cpu;
    Array x = Array::from_vector({1.0f}, {1});
    for (int i = 0; i < 100'000; ++i) x = x + 1e-3;
    CHECK(x.to_vector()[0] == doctest::Approx(101).epsilon(1e-3));
    const uint64_t active = cpu.backend().memory().active;
    for (int i = 0; i < 2'000; ++i) {
      x = x * 0.999 + 0.1;
      eval(x);
    }
    CHECK(cpu.backend().memory().active <= active + 64);
    Array never = x;
    for (int i = 0; i < 200'000; ++i) never = never + 1.0;  // dropped without an evaluation
  }

  TEST_CASE("empty and scalar arrays") {
    const Array empty = Array::from_vector({}, {0, 3});
    CHECK((empty + 1.0).to_vector().empty());
    CHECK((empty + Array::from_vector({1, 2, 3}, {3})).shape() == Shape{0, 3});
    const Array scalar = Array::from_vector({2}, {});
    CHECK((scalar * scalar).item() == 4);
  }

  TEST_CASE("mistakes name the op, what was given and what was expected") {
    const Array a = Array::from_vector({1, 2}, {2}), b = Array::from_vector({1, 2, 3}, {3});
    CHECK(test::error_of([&] { a + b; }).message == "[add] shapes (2) and (3) do not broadcast");
    CHECK(test::error_of([&] { call("exp", {as(a, DType::i32)}); }).message == "[exp] does not take i32");
    CHECK(test::error_of([&] { call("exp", {a, b}); }).message == "[exp] takes 1 inputs, 2 were given");
    CHECK(test::error_of([&] { call("exp", {a}, {{"speed", 1.0}}); }).message ==
          "[exp] there is no attribute 'speed'");
    CHECK(test::error_of([&] { call("nonsense", {a}); }).message == "[ops] there is no op 'nonsense'");
    CHECK(test::error_of([&] { reshape(b, {2}); }).message ==
          "[reshape] 3 elements of shape (3) do not fit into (2)");
    CHECK(test::error_of([&] { permute(a, {1}); }).kind == "invalid");
  }
}

TEST_SUITE("base: grad") {
  TEST_CASE("value and gradient of a function") {
    const auto f = value_and_grad(
        [](const std::vector<Array>& p) { return sum(call("square", {p[0]}) * p[1], {0, 1}); });
    const Array w = Array::from_vector({1, 2, 3}, {3});
    const auto [value, grads] = f({sample(), w});
    CHECK(value.item() == doctest::Approx(0.25 + 2 + 12 + 0.0625 + 1.125 + 6.75));
    CHECK(grads[0].to_vector()[1] == doctest::Approx(2 * -1.0 * 2));
    CHECK(grads[1].shape() == Shape{3});
    CHECK(grads[1].to_vector()[0] == doctest::Approx(0.25 + 0.0625));
  }

  TEST_CASE("second derivative of a small tanh network, against finite differences") {
    const Array w = Array::from_vector({0.3f, -0.2f, 0.8f, 0.5f, -0.4f, 0.1f, 0.7f, -0.6f, 0.2f}, {3, 3});
    const ArrayFunction f = [&](const std::vector<Array>& p) {
      return sum(call("tanh", {matmul(call("tanh", {matmul(p[0], w)}), w)}), {0, 1});
    };
    const ArrayFunction slope = [&](const std::vector<Array>& p) {
      return sum(call("square", {grad(f)(p)[0]}), {0, 1});
    };
    const std::vector<float> second = grad(slope)({sample()})[0].to_vector();
    std::vector<float> x = sample().to_vector();
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = [&](double step) {
        std::vector<float> moved = x;
        moved[i] += static_cast<float>(step);
        return slope({Array::from_vector(moved, {2, 3})}).item();
      };
      CHECK(second[i] == doctest::Approx((at(1e-2) - at(-1e-2)) / 2e-2).epsilon(0.01));
    }
  }

  TEST_CASE("an op without a gradient is named, never skipped") {
    const Array x = stop_gradient(sample());
    const Array y = call("floor_divide", {x, scalar_like(x, 2)});
    CHECK(test::error_of([&] { vjp({y}, {y}, {x}); }).message == "[grad] floor_divide has no gradient");
    CHECK(vjp({x * 2.0}, {y}, {sample()})[0].to_vector() ==
          std::vector<float>(6, 0.0f));  // stopped on purpose
  }

  TEST_CASE("a graph that was evaluated away is an error, not zeros") {
    const Array x = sample() + 0.0;
    const Array y = exp(x);
    eval(y);
    CHECK(test::error_of([&] { vjp({y}, {y}, {x}); }).kind == "invalid");
  }
}
