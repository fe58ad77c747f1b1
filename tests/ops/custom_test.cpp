#include <doctest/doctest.h>

#include <cmath>

#include "support/gpus.h"
#include "weft/custom.h"
#include "weft/ops.h"

using namespace weft;

namespace {

const CustomOp& bump() {
  static const CustomOp op = custom_op<[](float x) { return 1 / (1 + x * x); }>(
      "bump", "1.0 / (1.0 + {0} * {0})", [](const std::vector<Array>& in, const Array& y, const Array& g) {
        return std::vector{g * y * y * in[0] * -2.0};
      });
  return op;
}

const CustomOp& mix() {
  static const CustomOp op =
      custom_op<[](float a, float b, float t) { return a + t * (b - a); }>("mix", "mix({0}, {1}, {2})");
  return op;
}

}  // namespace

TEST_SUITE("base: custom ops") {
  TEST_CASE("broadcast, promote and fuse") {
    const Array x = Array::from_vector({-1, 0, 2}, {3, 1}), t = Array::from_vector({0, 0.5f}, {2});
    CHECK(bump()(x).to_vector() == std::vector{0.5f, 1.0f, 0.2f});
    CHECK(mix()(x, x * 3.0, t).to_vector() == std::vector{-1.0f, -2.0f, 0.0f, 0.0f, 2.0f, 4.0f});
    CHECK(bump()(as(x, DType::i32)).to_vector() == std::vector{0.5f, 1.0f, 0.2f});
    CHECK(bump()(as(x, DType::f16)).dtype() == DType::f16);
  }

  TEST_CASE("gradients") {
    const Array x = Array::from_vector({-1, 0, 2}, {3});
    const auto total = [](const std::vector<Array>& in) { return sum(bump()(in[0]) * in[1]); };
    const std::vector<Array> grads = grad(total)({x, Array::from_vector({3}, {1})});
    const std::vector<float> got = grads[0].to_vector();
    CHECK(got[0] == doctest::Approx(1.5));
    CHECK(got[1] == 0);
    CHECK(got[2] == doctest::Approx(-0.48));
    CHECK(grads[1].to_vector()[0] == doctest::Approx(1.7));
  }

  TEST_CASE("mistakes are named") {
    const Array x = Array::from_vector({1}, {1});
    const auto message = [](const auto& call) { return test::error_of(call).message; };
    CHECK(message([&] { bump()(x, x); }) == "[bump] takes 1 inputs, 2 were given");
    CHECK(message([] { custom_op<[](float v) { return v; }>("exp", "{0}"); }) ==
          "[custom_op] there is an op 'exp' already");
    CHECK(message([] { bump(), custom_op<[](float v) { return v; }>("bump", "{0}"); }) ==
          "[custom_op] there is an op 'bump' already");
    CHECK(message([&] {
            grad([&](const std::vector<Array>& in) { return sum(mix()(in[0], in[0], in[0])); })({x});
          }).find("mix") != std::string::npos);
  }
}
