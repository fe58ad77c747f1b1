// Gradients: fits y = tanh(x w) to a target by gradient descent. Usage: example-gradients [device]
#include <cstdio>
#include <exception>

#include "weft/grad.h"
#include "weft/ops.h"

int main(int argc, char** argv) try {
  using namespace weft;
  const Device device = Device::open(argc > 1 ? argv[1] : "auto");
  const Array x = Array::from_vector({0.2f, -0.4f, 0.9f, 0.5f, -0.7f, 0.1f, 0.3f, 0.8f}, {4, 2}, device);
  const Array target = tanh(matmul(x, Array::from_vector({0.7f, -1.2f}, {2, 1}, device)));

  const auto loss = value_and_grad(
      [&](const std::vector<Array>& p) { return mean(square(tanh(matmul(x, p[0])) - target)); });
  Array w = Array::from_vector({0, 0}, {2, 1}, device);
  float last = 0;
  for (int step = 0; step <= 200; ++step) {
    const auto [value, grads] = loss({w});
    w = w - grads[0] * 2.0;
    eval(w);
    last = value.item();
    if (step % 50 == 0) std::printf("step %3d  loss %.6f\n", step, last);
  }
  const std::vector<float> fitted = w.to_vector();
  std::printf("w = (%.3f, %.3f), wanted (0.700, -1.200)\n", fitted[0], fitted[1]);
  return last < 1e-4f ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
