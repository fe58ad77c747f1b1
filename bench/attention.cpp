// Attention, forward and backward, on the device that WEFT_DEVICE names (the CPU without it). The best of the
// repeats counts: other work on the machine only makes it slower.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "backend/backend.h"
#include "backend/select.h"
#include "ops/shorthand.h"
#include "weft/grad.h"

namespace {

using namespace weft;

struct Row {
  Shape q;  // (batch, heads, tokens, dim)
  int64_t key_heads, keys;
  bool causal;
  DType dtype;
  bool large;  // too much for a CPU
};

constexpr DType kFloat = DType::f32, kHalf = DType::f16;
const Row kRows[] = {
    {{1, 16, 1024, 64}, 16, 1024, false, kFloat, false}, {{1, 16, 1024, 64}, 16, 1024, true, kFloat, false},
    {{8, 12, 128, 64}, 12, 128, false, kFloat, false},   {{8, 12, 128, 64}, 12, 128, true, kFloat, false},
    {{1, 32, 512, 128}, 8, 512, true, kHalf, false},     {{1, 32, 1, 128}, 32, 4096, false, kFloat, false},
    {{1, 32, 1, 128}, 8, 4096, false, kHalf, false},     {{4, 32, 2048, 128}, 32, 2048, true, kFloat, true},
    {{4, 32, 2048, 128}, 32, 2048, true, kHalf, true},   {{1, 32, 1, 128}, 32, 4096, false, kHalf, true},
    {{1, 32, 1, 128}, 32, 32768, false, kHalf, true},    {{1, 32, 1, 128}, 8, 32768, false, kHalf, true},
};

Array random_array(const Shape& shape, DType dtype, const Device& device) {
  static std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& v : values) v = static_cast<float>(random()) * 0x1p-31f - 1;
  const Array array = as(Array::from_vector(values, shape, device), dtype);
  eval(array);
  return array;
}

/// Seconds of one step, the best of batches that end with a synchronize.
double best_seconds(Backend& backend, const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  const auto batch = [&](int steps) {
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    backend.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double best = batch(1), spent = 0;
  const int steps = std::clamp(static_cast<int>(0.01 / batch(1)), 1, 64);
  for (int repeat = 0; repeat < 3 || (repeat < 1000 && spent < 1); ++repeat) {
    const double seconds = batch(steps);
    best = std::min(best, seconds / steps);
    spent += seconds;
  }
  return best;
}

void measure(const Row& row, const Device& device) {
  Shape of_keys = row.q;
  of_keys[1] = row.key_heads, of_keys[2] = row.keys;
  const Array q = random_array(row.q, row.dtype, device), k = random_array(of_keys, row.dtype, device),
              v = random_array(of_keys, row.dtype, device), g = random_array(row.q, row.dtype, device);
  const Attrs attrs = {{"causal", row.causal}, {"enable_gqa", true}};
  const double forward = best_seconds(device.backend(), [&] { eval(call("sdpa", {q, k, v}, attrs)); });
  const double products = 2.0 * static_cast<double>(element_count(row.q)) * static_cast<double>(row.keys) *
                          (row.causal ? 0.5 : 1);
  const double bytes = 2.0 * static_cast<double>(k.size() * static_cast<int64_t>(size_of(row.dtype)));
  fmt::print("{:<34} forward {:>9.3f} ms {:>8.1f} GFLOP/s {:>7.1f} GB/s of keys and values",
             fmt::format("{} {} keys x {} {}{}", to_string(row.q), row.keys, row.key_heads,
                         name_of(row.dtype), row.causal ? " causal" : ""),
             forward * 1e3, 2 * products / forward * 1e-9, bytes / forward * 1e-9);
  if (row.q[2] > 1) {
    const double both =
        best_seconds(device.backend(), [&] { eval(vjp({call("sdpa", {q, k, v}, attrs)}, {g}, {q, k, v})); });
    fmt::print("   backward {:>9.3f} ms {:>8.1f} GFLOP/s", (both - forward) * 1e3,
               5 * products / (both - forward) * 1e-9);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  const DeviceWish wish = device_wish();
  const Device device = wish.value == "auto" ? Device() : Device::open(wish.value);
  const bool large = wish.value != "auto" && device.name().find("llvmpipe") == std::string::npos;
  fmt::print("{}\n", device.name());
  for (const Row& row : kRows)
    if (large || !row.large) measure(row, device);
}
