// An op of one's own, for the CPU and for GPUs, with its gradient. Usage: example-custom_op [device]
#include <cmath>
#include <cstdio>
#include <exception>

#include "weft/custom.h"
#include "weft/ops.h"

int main(int argc, char** argv) try {
  using namespace weft;
  const Device device = Device::open(argc > 1 ? argv[1] : "auto");

  // The snake function: x + sin(a x)^2 / a.
  const CustomOp snake =
      custom_op<[](float x, float a) { return x + std::sin(a * x) * std::sin(a * x) / a; }>(
          "snake", "{0} + sin({1} * {0}) * sin({1} * {0}) / {1}",
          [](const std::vector<Array>& in, const Array&, const Array& g) {
            const Array &x = in[0], &a = in[1];
            const Array wave = sin(a * x * 2.0), square_of_sine = square(sin(a * x));
            return std::vector{g * (wave + 1.0), g * (x * wave / a - square_of_sine / (a * a))};
          });

  const Array x = Array::from_vector({-2, -1, 0, 0.5f, 1, 2}, {6}, device);
  const Array a = Array::from_vector({1.5f}, {1}, device);
  const auto total = [&](const std::vector<Array>& in) { return sum(snake(in[0], in[1]) * 2.0); };
  const std::vector<Array> grads = grad(total)({x, a});  // the op and its neighbours run as one kernel
  std::printf("snake(x) on %s:", device.name().c_str());
  for (float value : snake(x, a).to_vector()) std::printf(" %.4f", value);
  std::printf("\ngradient of a: %.4f\n", grads[1].item());

  // The gradient as a difference.
  const float step = 1e-2f;
  const float slope = (total({x, a + step}).item() - total({x, a - step}).item()) / (2 * step);
  return std::fabs(slope - grads[1].item()) < 1e-2f ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
