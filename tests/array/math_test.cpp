#include "array/math.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "ops/shorthand.h"

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

template <typename F>
std::vector<float> each(F f, const std::vector<float>& xs) {
  std::vector<float> ys;
  for (float x : xs) ys.push_back(f(x));
  return ys;
}

template <typename Exact>
void check(const char* name, const std::vector<float>& xs, const std::vector<float>& ys, Exact exact,
           double most = 2.5) {
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < xs.size(); ++i)
    if (const double error = ulps(ys[i], exact(static_cast<double>(xs[i]))); error > worst)
      worst = error, at = xs[i];
  CAPTURE(name);
  CAPTURE(at);
  CHECK(worst <= most);
}

struct Function {
  const char* op;
  float (*form)(float);
  double (*exact)(double);
  double most = 2.5;  // units of the last place
};

const Function kFunctions[] = {
    {"exp", math::exp, std::exp},
    {"exp2", math::exp2, std::exp2},
    {"expm1", math::expm1, std::expm1},
    {"log", math::log, std::log},
    {"log2", math::log2, std::log2},
    {"log1p", math::log1p, std::log1p},
    {"sigmoid", math::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"softplus", math::softplus, [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); }},
    {"erf", math::erf, std::erf},
    {"silu", math::silu, [](double x) { return x / (1 + std::exp(-x)); }, 3.5},  // a product and a quotient
    {"tanh", math::tanh, std::tanh, 5},
};

double exact_gelu(double x) {
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}
double exact_gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

void check_gelu(const std::vector<float>& xs, const std::vector<float>& erf_form,
                const std::vector<float>& tanh_form, double most) {
  for (size_t i = 0; i < xs.size(); ++i) {
    if (std::isnan(xs[i])) continue;
    CAPTURE(xs[i]);
    const double exact = exact_gelu(xs[i]), near = exact_gelu_tanh(xs[i]);
    if (xs[i] > 0) CHECK(ulps(erf_form[i], exact) <= most);
    CHECK(std::fabs(erf_form[i] - exact) <= 2e-6 * std::fabs(exact) + 1e-9);
    CHECK(std::fabs(tanh_form[i] - near) <= 2e-6 * std::fabs(near) + 1e-9);
  }
}

/// As the CPU computes it, in vectors.
std::vector<float> on_cpu(const char* op, const std::vector<float>& xs) {
  return call(op, {Array::from_vector(xs, {static_cast<int64_t>(xs.size())})}).to_vector();
}

/// An array of that dtype, and the op on it, not in one go with conversions.
std::vector<float> on_cpu(const char* op, const std::vector<float>& xs, DType dtype) {
  const Array x = as(Array::from_vector(xs, {static_cast<int64_t>(xs.size())}), dtype);
  eval(x);
  const Array y = call(op, {x});
  eval(y);
  return y.to_vector();
}

bool is_same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// What has forms of its own for some processors.
const char* const kVectorForms[] = {"exp", "sigmoid", "silu", "gelu_tanh", "tanh", "erf", "gelu_erf"};

}  // namespace

TEST_SUITE("base: math") {
  TEST_CASE("functions are within 2.5 units of the last place, silu within 3.5, tanh within 5") {
    const std::vector<float> xs = samples(math::kInfinity);
    for (const Function& f : kFunctions) check(f.op, xs, each(f.form, xs), f.exact, f.most);
    const std::vector<float> angles = samples(math::kMaxAngle);
    check("sin", angles, each([](float x) { return math::sin_turned(x, 0); }, angles),
          [](double x) { return std::sin(x); });
    check("cos", angles, each([](float x) { return math::sin_turned(x, 1); }, angles),
          [](double x) { return std::cos(x); });
  }

  TEST_CASE("the CPU's vectors are as exact") {
    const std::vector<float> xs = samples(math::kInfinity), moderate = samples(1e30f);
    for (const Function& f : kFunctions) check(f.op, xs, on_cpu(f.op, xs), f.exact, f.most);
    check_gelu(moderate, on_cpu("gelu_erf", moderate), on_cpu("gelu_tanh", moderate), 3.5);
    for (const char* op : kVectorForms) {
      CAPTURE(op);
      const std::vector<float> y = on_cpu(op, {math::kNaN, 0.0f, -0.0f, math::kInfinity, -0x1p-140f});
      CHECK(std::isnan(y[0]));
      if (op == std::string_view("exp") || op == std::string_view("sigmoid")) continue;
      CHECK((y[1] == 0 && !std::signbit(y[1])));
      CHECK((y[2] == 0 && std::signbit(y[2])));
      CHECK(y[3] == (op == std::string_view("tanh") || op == std::string_view("erf") ? 1 : math::kInfinity));
      CHECK(y[4] < 0);
    }
    std::vector<float> near_one;
    for (int i = 30'000; i < 95'000; ++i) near_one.push_back(static_cast<float>(i) * 1e-4f);
    for (const char* op : {"tanh", "erf"})
      for (float y : on_cpu(op, near_one)) CHECK(y <= 1);
  }

  TEST_CASE("the CPU's vectors: every count, and results past the caches") {
    const std::vector<float> xs = samples(math::kInfinity);
    std::vector<float> many;  // 34 MiB of halves
    for (size_t i = 0; i < 17'825'792; ++i) many.push_back(xs[i % xs.size()]);
    for (const char* op : kVectorForms) {
      CAPTURE(op);
      const std::vector<float> ys = on_cpu(op, xs);
      for (size_t n = 1; n < 100; ++n)
        CHECK(std::ranges::equal(on_cpu(op, {xs.end() - static_cast<ptrdiff_t>(n), xs.end()}),
                                 std::span(ys).last(n), is_same));
      for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        CAPTURE(name_of(dtype));
        const std::vector<float> few = on_cpu(op, xs, dtype), lots = on_cpu(op, many, dtype);
        size_t wrong = 0;
        for (size_t i = 0; i < many.size(); ++i) wrong += !is_same(lots[i], few[i % xs.size()]);
        CHECK(wrong == 0);
      }
    }
  }

  TEST_CASE("tanh is never above 1") {
    for (int i = 80'000; i < 91'000; ++i) CHECK(math::tanh(static_cast<float>(i) * 1e-4f) <= 1);
  }

  TEST_CASE("gelu is exact where it counts") {
    const std::vector<float> xs = samples(1e30f);
    check_gelu(xs, each(math::gelu, xs), each(math::gelu_tanh, xs), 3);
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
