#include "backend/webgpu/webgpu_backend.h"
#include "ops/values.h"
#include "support/gpus.h"

using namespace weft;
using test::Floats;
using test::kInf;

namespace {

/// Slopes where functions have a kink, or none at all.
void check_kinks(const Device& device) {
  const auto slopes = [&](const char* op, const std::vector<Floats>& values) {
    std::vector<Array> inputs;
    for (const Floats& v : values)
      inputs.push_back(Array::from_vector(v, {static_cast<int64_t>(v.size())}, device));
    std::vector<Floats> result;
    for (const Array& g : vjp({call(op, inputs)}, {zeros_like(inputs[0]) + 1.0}, inputs))
      result.push_back(g.to_vector());
    return result;
  };
  CHECK(slopes("log_sigmoid", {{0}})[0][0] == doctest::Approx(0.5));
  const std::vector<Floats> pow = slopes("pow", {{0, 0, 0, 2, -1}, {0, 1, 2, 0, 0}});
  CHECK((pow[0] == Floats{0, 1, 0, 0, 0}));
  test::close(Array::from_vector(pow[1], {5}), {0, 0, 0, std::log(2.0f), 0});
  CHECK((slopes("pow", {{0}, {-1}}) == std::vector<Floats>{{-kInf}, {-kInf}}));
  const std::vector<Floats> angle = slopes("atan2", {{0, 0, 1}, {0, 2, 0}});
  test::close(Array::from_vector(angle[0], {3}), {0, 0.5, 0});
  test::close(Array::from_vector(angle[1], {3}), {0, 0, -1});
}

}  // namespace

TEST_SUITE("base: ops elementwise") {
  TEST_CASE("clamp: the gradient passes where min <= x <= max, with min > max nowhere") {
    const auto gradient = [](const Array& x, const Attrs& attrs) {
      const Array ones =
          as(Array::from_vector(Floats(static_cast<size_t>(x.size()), 1), x.shape()), x.dtype());
      return as(vjp({call("clamp", {x}, attrs)}, {ones}, {x})[0], DType::f32).to_vector();
    };
    const Array x = Array::from_vector({-2, -1, 0, 1, 2}, {5});
    CHECK((gradient(x, {{"min", -1.0}, {"max", 1.0}}) == Floats{0, 1, 1, 1, 0}));
    CHECK((gradient(x, {{"min", 1.0}, {"max", -1.0}}) == Floats{0, 0, 0, 0, 0}));
    // The f16 next to 0.3 is above it.
    const Array half = as(Array::from_vector({0.3f, 0.29f}, {2}), DType::f16);
    CHECK((gradient(half, {{"max", 0.3}}) == Floats{0, 1}));
  }

  TEST_CASE("pow_scalar: a negative base with a fraction is NaN, -inf too") {
    const Array x = Array::from_vector({4, 0, -4, -kInf}, {4});
    for (const double e : {0.5, -0.5}) {
      CAPTURE(e);
      const Floats y = call("pow_scalar", {x}, {{"exponent", e}}).to_vector();
      CHECK(y[0] == (e > 0 ? 2.0f : 0.5f));
      CHECK(y[1] == (e > 0 ? 0 : kInf));
      CHECK(std::isnan(y[2]));
      CHECK(std::isnan(y[3]));
    }
  }

  TEST_CASE("masked_fill: true and false are values") {
    const Array mask = as(Array::from_vector({1, 0, 1, 0}, {4}), DType::boolean),
                x = as(Array::from_vector({0, 0, 1, 1}, {4}), DType::boolean);
    const auto filled = [&](bool value) {
      return as(call("masked_fill", {x, mask}, {{"value", value}}), DType::f32).to_vector();
    };
    CHECK((filled(true) == Floats{1, 0, 1, 1}));
    CHECK((filled(false) == Floats{0, 0, 0, 1}));
  }

  TEST_CASE("gradients at kinks: log_sigmoid at 0, powers of 0, the angle of nothing") {
    check_kinks(Device());
  }
}

TEST_SUITE("gpu ops elementwise") {
  TEST_CASE("gradients at kinks: log_sigmoid at 0, powers of 0, the angle of nothing") {
    test::on_every_gpu(
        [](const test::TestGpu& gpu) { check_kinks(Device(std::make_shared<WebgpuBackend>(gpu.open()))); });
  }
}
