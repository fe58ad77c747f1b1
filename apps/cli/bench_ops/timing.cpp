#include "bench_ops/timing.h"

#include <algorithm>
#include <chrono>

namespace weft::bench_ops {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

double median_seconds(Backend& backend, const std::function<void()>& step) {
  constexpr double kBatch = 0.02, kWarm = 0.2, kTotal = 0.3;  // seconds
  constexpr size_t kFewest = 5;
  const auto batch = [&](int steps) {
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    backend.synchronize();
    return seconds_since(begin);
  };
  batch(1);  // kernels are compiled, memory is touched
  int steps = 1;
  for (const auto begin = Clock::now(); seconds_since(begin) < kWarm;)
    if (batch(steps) < kBatch && steps < 1024) steps *= 2;
  std::vector<double> times;
  for (const auto begin = Clock::now(); times.size() < kFewest || seconds_since(begin) < kTotal;)
    times.push_back(batch(steps) / steps);
  std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

}  // namespace weft::bench_ops
