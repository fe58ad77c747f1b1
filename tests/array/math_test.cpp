#include "array/math.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace weft;

namespace {

/// The error in units of the last place of the exact value.
double ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(rounded)) return got == rounded ? 0 : 1e9;
  int exponent;
  std::frexp(exact, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

/// Floats of every exponent and sign, and the special ones.
std::vector<float> samples(float limit) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 40'009)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float x :
       {0.0f, 1.0f, 1e-45f, 0x1p-126f, 0x1p-25f, 88.72f, 89.0f, 103.9f, 104.5f, 3.4e38f, math::kInfinity})
    values.insert(values.end(), {x, -x});
  std::erase_if(values, [limit](float x) { return std::fabs(x) > limit; });
  return values;
}

template <typename F, typename Exact>
void check(const char* name, F f, Exact exact, float limit = math::kInfinity, double most = 2.5) {
  double worst = 0;
  float at = 0;
  for (float x : samples(limit))
    if (const double error = ulps(f(x), exact(static_cast<double>(x))); error > worst) worst = error, at = x;
  CAPTURE(name);
  CAPTURE(at);
  CHECK(worst <= most);
}

}  // namespace

TEST_SUITE("base: math") {
  TEST_CASE("functions are within 2.5 units of the last place") {
    check("exp", math::exp, [](double x) { return std::exp(x); });
    check("exp2", math::exp2, [](double x) { return std::exp2(x); });
    check("expm1", math::expm1, [](double x) { return std::expm1(x); });
    check("log", math::log, [](double x) { return std::log(x); });
    check("log2", math::log2, [](double x) { return std::log2(x); });
    check("log1p", math::log1p, [](double x) { return std::log1p(x); });
    check("sigmoid", math::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
    check("softplus", math::softplus, [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); });
    check("erf", math::erf, [](double x) { return std::erf(x); });
    check(
        "sin", [](float x) { return math::sin_turned(x, 0); }, [](double x) { return std::sin(x); },
        math::kMaxAngle);
    check(
        "cos", [](float x) { return math::sin_turned(x, 1); }, [](double x) { return std::cos(x); },
        math::kMaxAngle);
  }

  TEST_CASE("silu is within 3.5: a product and a quotient") {
    check("silu", math::silu, [](double x) { return x / (1 + std::exp(-x)); }, math::kInfinity, 3.5);
  }

  TEST_CASE("tanh is within 5, and never above 1") {
    check("tanh", math::tanh, [](double x) { return std::tanh(x); }, math::kInfinity, 5);
    for (float x = 8; x < 9.1f; x += 1e-4f) CHECK(math::tanh(x) <= 1);
  }

  TEST_CASE("gelu is exact where it counts") {
    for (float x : samples(1e30f)) {
      if (std::isnan(x)) continue;
      CAPTURE(x);
      const double wide = x, exact = 0.5 * wide * std::erfc(-wide * std::sqrt(0.5));
      const double linear = 0.7978845608028654 * (wide + 0.044715 * wide * wide * wide);
      const double near = wide / (1 + std::exp(-2 * linear));
      if (x > 0) CHECK(ulps(math::gelu(x), exact) <= 3);
      CHECK(std::fabs(math::gelu(x) - exact) <= 2e-6 * std::fabs(exact) + 1e-9);
      CHECK(std::fabs(math::gelu_tanh(x) - near) <= 2e-6 * std::fabs(near) + 1e-9);
    }
  }

  TEST_CASE("NaN stays NaN") {
    for (auto f : {math::exp, math::exp2, math::expm1, math::log, math::log2, math::log1p, math::tanh,
                   math::sigmoid, math::silu, math::softplus, math::erf, math::gelu, math::gelu_tanh})
      CHECK(std::isnan(f(math::kNaN)));
  }

  TEST_CASE("zero keeps its sign") {
    for (auto f :
         {math::expm1, math::log1p, math::tanh, math::silu, math::erf, math::gelu, math::gelu_tanh}) {
      CHECK(!std::signbit(f(0.0f)));
      CHECK(std::signbit(f(-0.0f)));
    }
  }

  TEST_CASE("powers of two are exact") {
    for (int n = -149; n < 128; ++n) {
      CHECK(math::exp2(static_cast<float>(n)) == std::ldexp(1.0f, n));
      CHECK(math::log2(std::ldexp(1.0f, n)) == static_cast<float>(n));
    }
  }
}
