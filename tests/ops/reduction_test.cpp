#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/grad.h"

using namespace weft;
using test::error_of;
using Floats = std::vector<float>;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Array row(const Floats& values) {
  return Array::from_vector(values, {static_cast<int64_t>(values.size())});
}

Ints whole_numbers(const Array& x) {
  const HostTensor host = as(x, DType::i32).to_host();
  std::vector<int32_t> values(host.bytes.size() / 4);
  std::memcpy(values.data(), host.bytes.data(), host.bytes.size());
  return {values.begin(), values.end()};
}

/// Of <1, op(x)>.
Floats gradient(std::string_view op, const Array& x, const Attrs& attrs = {}) {
  const Array y = call(op, {x}, attrs);
  return vjp({y}, {expand(scalar_like(y, 1), y.shape())}, {x})[0].to_vector();
}

void check_near(const Floats& got, const Floats& want, double tolerance = 1e-5) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(tolerance));
  }
}

/// Of <weights, op(x)>, by central differences.
Floats measured(std::string_view op, const Floats& x, const Attrs& attrs) {
  const auto value = [&](size_t at, float step) {
    Floats moved = x;
    moved[at] += step;
    double total = 0, weight = 1;
    for (float y : call(op, {row(moved)}, attrs).to_vector())
      total += (weight += 0.5) * static_cast<double>(y);
    return total;
  };
  Floats result;
  for (size_t i = 0; i < x.size(); ++i)
    result.push_back(static_cast<float>((value(i, 0.01f) - value(i, -0.01f)) / 0.02));
  return result;
}

Floats derived(std::string_view op, const Floats& x, const Attrs& attrs) {
  const Array leaf = row(x), y = call(op, {leaf}, attrs);
  Floats weights;
  for (int64_t i = 0; i < y.size(); ++i) weights.push_back(1.5f + 0.5f * static_cast<float>(i));
  return vjp({y}, {Array::from_vector(weights, y.shape())}, {leaf})[0].to_vector();
}

}  // namespace

TEST_SUITE("base: ops reduction") {
  TEST_CASE("reduction: dims absent, none, one, kept") {
    const Array x = Array::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
    CHECK(call("sum", {x}).item() == 21);
    CHECK(call("sum", {x}).shape().empty());
    CHECK((call("sum", {x}, {{"dims", Ints{}}}).to_vector() == Floats{1, 2, 3, 4, 5, 6}));
    CHECK((call("mean", {x}, {{"dims", Ints{0}}}).to_vector() == Floats{2.5f, 3.5f, 4.5f}));
    CHECK((call("max", {x}, {{"dims", Ints{-1}}, {"keepdim", true}}).shape() == Shape{2, 1}));
    CHECK((call("var", {x}, {{"dims", Ints{1}}, {"correction", int64_t{0}}}).to_vector()[0] ==
           doctest::Approx(2.0 / 3)));
    CHECK((call("argmin", {x}, {{"keepdim", true}}).shape() == Shape{1, 1}));
    CHECK((whole_numbers(call("argmax", {x}, {{"dim", int64_t{0}}})) == Ints{1, 1, 1}));
    CHECK((whole_numbers(call("all", {x}, {{"dims", Ints{}}})) == Ints(6, 1)));
  }

  TEST_CASE("reduction: nothing to reduce") {
    const Array x = Array::from_vector({}, {2, 0});
    CHECK((call("sum", {x}, {{"dims", Ints{1}}}).to_vector() == Floats{0, 0}));
    CHECK((call("prod", {x}, {{"dims", Ints{1}}}).to_vector() == Floats{1, 1}));
    CHECK((call("logsumexp", {x}, {{"dims", Ints{1}}}).to_vector() == Floats{-kInf, -kInf}));
    CHECK(std::isnan(call("mean", {x}).item()));
    CHECK(call("max", {x}, {{"dims", Ints{0}}}).size() == 0);
    CHECK(error_of([&] { call("max", {x}, {{"dims", Ints{1}}}); }).message ==
          "[max] dim 1 of (2,0) is empty: it has no extreme element");
    CHECK(error_of([&] { call("argmin", {x}); }).message ==
          "[argmin] the array of shape (2,0) is empty: it has no extreme element");
  }

  TEST_CASE("reduction and scan: a scalar has a dim 0, which is also its last") {
    const Array x = Array::from_vector({3}, {});
    for (const int64_t dim : {0, -1}) {
      CAPTURE(dim);
      for (const char* op : {"sum", "mean", "max", "logsumexp", "norm"}) {
        CAPTURE(op);
        const Array y = call(op, {x}, {{"dims", Ints{dim}}, {"keepdim", true}});
        CHECK(y.shape().empty());
        CHECK(y.item() == 3);
      }
      for (const char* op : {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"}) {
        CAPTURE(op);
        const Array y = call(op, {x}, {{"dim", dim}});
        CHECK(vjp({y}, {Array::from_vector({2}, {})}, {x})[0].item() == 2);
        CHECK(y.shape().empty());
        CHECK(y.item() == 3);
      }
      CHECK((whole_numbers(call("argmax", {x}, {{"dim", dim}, {"keepdim", true}})) == Ints{0}));
      CHECK(call("squeeze", {x}, {{"dim", dim}}).shape().empty());
    }
    CHECK(error_of([&] { call("cumsum", {x}, {{"dim", int64_t{1}}}); }).kind == "invalid");
    CHECK(error_of([&] { call("argmax", {x}, {{"dim", int64_t{1}}}); }).kind == "invalid");
    CHECK(error_of([&] { call("sum", {x}, {{"dims", Ints{-2}}}); }).kind == "invalid");
  }

  TEST_CASE("reduction: errors") {
    const Array x = row({1, 2});
    CHECK(error_of([&] { call("mean", {as(x, DType::i32)}); }).message ==
          "[mean] takes floats, not i32; convert with to_dtype");
    CHECK(error_of([&] { call("sum", {as(x, DType::boolean)}); }).message ==
          "[sum] takes numbers, not bool; convert with to_dtype");
    CHECK(error_of([&] { call("norm", {x}, {{"p", int64_t{3}}}); }).message ==
          "[norm] p is 1, 2 or inf, not 3");
    CHECK(error_of([&] { call("cumsum", {x}, {{"dim", int64_t{1}}}); }).kind == "invalid");
  }

  TEST_CASE("reduction: f16 rounds once") {
    // In f16 the sums would overflow.
    const Array x = as(row(Floats(64, 200)), DType::f16);
    CHECK((as(call("norm", {x}), DType::f32).item() == 1600));
    CHECK((as(call("mean", {as(row(Floats(3, 60000)), DType::f16)}), DType::f32).item() == 60000));
    CHECK(call("var", {x}).dtype() == DType::f16);
  }

  TEST_CASE("reduction: gradients where care is needed") {
    check_near(gradient("prod", row({2, 0, 3})), {0, 6, 0});
    check_near(gradient("prod", row({0, 0, 3})), {0, 0, 0});
    check_near(
        gradient("prod", Array::from_vector({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}), {{"dims", Ints{0, 2}}}),
        {60, 30, 224, 168, 12, 10, 96, 84});
    check_near(gradient("max", row({3, 1, 3})), {0.5f, 0, 0.5f});
    check_near(gradient("min", row({3, 1, 2})), {0, 1, 0});
    check_near(gradient("std", row({2, 2, 2})), {0, 0, 0});
    check_near(gradient("norm", row({0, 0})), {0, 0});
    check_near(gradient("logsumexp", row({1000, -kInf, 1000})), {0.5f, 0, 0.5f});
    const Array nan = row({1, NAN, 3});
    check_near(gradient("max", nan), {0, 1, 0});
  }

  TEST_CASE("scan: cumprod, cummax and logcumsumexp") {
    const Array x = row({2, 0, 3, 5});
    const Attrs first = {{"dim", int64_t{0}}}, back = {{"dim", int64_t{0}}, {"reverse", true}};
    CHECK(
        (call("cumprod", {x}, {{"dim", int64_t{0}}, {"exclusive", true}}).to_vector() == Floats{1, 2, 0, 0}));
    check_near(gradient("cumprod", x, first), {1, 2 + 6 + 30, 0, 0});
    check_near(gradient("cummax", row({1, 3, 2, 3, 4}), first), {1, 2, 0, 1, 1});
    check_near(gradient("cummin", row({1, 3, 2, 3, 4}), back), {1, 0, 2, 1, 1});
    const Floats log_sums = call("logcumsumexp", {row({-kInf, 1000, 1000})}, first).to_vector();
    CHECK(log_sums[0] == -kInf);
    CHECK(log_sums[2] == doctest::Approx(1000.6931));
    check_near(gradient("logcumsumexp", row({-kInf, 1000, 1000}), first), {1, 1.5f, 0.5f});
  }

  TEST_CASE("scan and reduction: gradients agree with differences") {
    const Floats x = {0.9f, -1.3f, 0, 0.7f, 1.6f, -0.4f, 0, 1.1f, 0.35f};
    for (const char* op : {"cumsum", "cumprod"})
      for (bool reverse : {false, true})
        for (bool exclusive : {false, true}) {
          CAPTURE(op);
          CAPTURE(reverse);
          CAPTURE(exclusive);
          const Attrs attrs = {{"dim", int64_t{0}}, {"reverse", reverse}, {"exclusive", exclusive}};
          check_near(derived(op, x, attrs), measured(op, x, attrs), 2e-3);
        }
    for (const char* op : {"cummax", "cummin", "logcumsumexp"})
      for (bool reverse : {false, true}) {
        CAPTURE(op);
        CAPTURE(reverse);
        const Attrs attrs = {{"dim", int64_t{0}}, {"reverse", reverse}};
        const Floats distinct = {0.9f, -1.3f, 0, 0.7f, 1.6f, -0.4f, 0.05f, 1.1f, 0.35f};
        check_near(derived(op, distinct, attrs), measured(op, distinct, attrs), 2e-3);
      }
    for (const char* op :
         {"sum", "mean", "prod", "var", "std", "logsumexp", "norm", "trapezoid", "cumulative_trapezoid"}) {
      CAPTURE(op);
      check_near(derived(op, x, {}), measured(op, x, {}), 2e-3);
    }
  }

  TEST_CASE("scan: the gradient of a gradient, with a zero inside") {
    // y = x0 + x0 x1 + x0 x1 x2 at (2, 0, 3): d2y/dx1 dx = (1 + x2, 0, x0), for v = (0, 1, 0).
    const Array x = row({2, 0, 3});
    const Array y = call("cumprod", {x}, {{"dim", int64_t{0}}});
    const Array first = vjp({y}, {row({1, 1, 1})}, {x})[0];
    check_near(vjp({first}, {row({0, 1, 0})}, {x})[0].to_vector(), {4, 0, 2});
    const Array product = call("prod", {x});
    const Array others = vjp({product}, {scalar_like(x, 1)}, {x})[0];
    check_near(vjp({others}, {row({1, 1, 1})}, {x})[0].to_vector(), {3, 5, 2});
  }
}

TEST_SUITE("base: ops creation") {
  TEST_CASE("creation: values, ends and dtypes") {
    CHECK((whole_numbers(
               call("arange", {}, {{"start", int64_t{5}}, {"stop", int64_t{-7}}, {"step", int64_t{-3}}})) ==
           Ints{5, 2, -1, -4}));
    CHECK(call("arange", {}, {{"stop", int64_t{-1}}}).size() == 0);
    CHECK((call("linspace", {}, {{"start", 0.0}, {"stop", 1.0}, {"num", int64_t{3}}}).to_vector() ==
           Floats{0, 0.5f, 1}));
    CHECK((call("eye", {}, {{"n", int64_t{2}}, {"m", int64_t{3}}}).to_vector() == Floats{1, 0, 0, 0, 1, 0}));
    CHECK((whole_numbers(
               call("full", {}, {{"shape", Ints{2}}, {"value", true}, {"dtype", std::string("bool")}})) ==
           Ints{1, 1}));
    check_near(call("sinusoidal_encoding", {}, {{"length", int64_t{2}}, {"dim", int64_t{4}}}).to_vector(),
               {0, 1, 0, 1, std::sin(1.0f), std::cos(1.0f), std::sin(0.01f), std::cos(0.01f)});
    CHECK(error_of([] { call("arange", {}, {{"stop", 3.0}, {"step", 0.0}}); }).message ==
          "[arange] there is no range from 0 to 3 in steps of 0");
    CHECK(error_of([] {
            call("sinusoidal_encoding", {}, {{"length", int64_t{2}}, {"dim", int64_t{3}}});
          }).kind == "invalid");
  }
}
