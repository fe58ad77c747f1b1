#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "weft/grad.h"

/// Values to try ops on, and checks of what comes out.
namespace weft::test {

using Floats = std::vector<float>;
inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// Values between -1.5 and 1.5 without pattern.
inline Array varied(const Shape& shape, int seed = 0) {
  Floats v;
  for (int64_t i = 0; i < element_count(shape); ++i)
    v.push_back(1.5f * std::sin(static_cast<float>(i * i + 3 * i + seed) * 1.7f));
  return Array::from_vector(v, shape);
}

inline Array whole(const std::vector<int32_t>& values, const Shape& shape) {
  HostTensor host{DType::i32, shape, std::vector<std::byte>(values.size() * 4)};
  if (!values.empty()) std::memcpy(host.bytes.data(), values.data(), host.bytes.size());
  return Array::from_host(host);
}

inline void close(const Array& got, const Floats& want, double tolerance = 1e-5) {
  const Floats values = as(got, DType::f32).to_vector();
  REQUIRE(values.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(values[i] == doctest::Approx(want[i]).epsilon(tolerance));
  }
}

/// Gradient of sum(weights * f(x)) against central differences.
inline void check_gradient(const std::function<Array(const Array&)>& f, const Array& x) {
  const auto loss = [&](const Array& at) {
    const Array y = f(at);
    return call("sum", {y * varied(y.shape(), 5)});
  };
  const Floats slope = grad([&](const std::vector<Array>& in) { return loss(in[0]); })({x})[0].to_vector();
  Floats v = x.to_vector();
  for (size_t i = 0; i < v.size(); ++i) {
    const float kept = v[i], step = 1.0f / 64;
    v[i] = kept + step;
    const float above = loss(Array::from_vector(v, x.shape())).item();
    v[i] = kept - step;
    const float below = loss(Array::from_vector(v, x.shape())).item();
    v[i] = kept;
    CAPTURE(i);
    CHECK(slope[i] == doctest::Approx((above - below) / (2 * step)).epsilon(0.01).scale(0.2));
  }
}

}  // namespace weft::test
