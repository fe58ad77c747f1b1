// Arrays: a lazy graph, evaluated when a value is asked for. Usage: example-arrays [device]
#include <cstdio>
#include <exception>

#include "weft/array.h"
#include "weft/ops.h"

int main(int argc, char** argv) try {
  using namespace weft;
  const Device device = Device::open(argc > 1 ? argv[1] : "auto");
  const Array x = Array::from_vector({1, 2, 3, 4, 5, 6}, {2, 3}, device);
  const Array w = Array::from_vector({0.1f, -0.2f, 0.3f, 0.4f, -0.5f, 0.6f}, {3, 2}, device);
  const Array b = Array::from_vector({0.5f, -0.5f}, {2}, device);

  const Array y = softmax(matmul(x, w) + b, -1);  // nothing has run yet
  std::printf("softmax(x w + b) on %s:", device.name().c_str());
  for (float value : y.to_vector()) std::printf(" %.4f", value);  // now it has
  std::printf("\n");
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
