#include "bench_ops/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace weft::bench_ops {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// As many steps as take 20 ms or more.
class Batch {
 public:
  Batch(Backend& backend, const std::function<void()>& step) : backend_(backend), step_(step) {
    constexpr double kBatch = 0.02, kWarm = 0.2;  // seconds
    run();                                        // kernels are compiled, memory is touched
    for (const auto begin = Clock::now(); seconds_since(begin) < kWarm;)
      if (run() * steps_ < kBatch && steps_ < 1024) steps_ *= 2;
  }

  /// Seconds of a step.
  double run() {
    const auto begin = Clock::now();
    for (int i = 0; i < steps_; ++i) step_();
    backend_.synchronize();
    return seconds_since(begin) / steps_;
  }

 private:
  Backend& backend_;
  const std::function<void()>& step_;
  int steps_ = 1;
};

/// What once() gives, over and over: the middle one of the order that `less` makes.
template <typename Once, typename Less>
auto median_of(const Once& once, const Less& less) {
  constexpr double kTotal = 0.3;  // seconds
  constexpr size_t kFewest = 5;
  std::vector<decltype(once())> all;
  for (const auto begin = Clock::now(); all.size() < kFewest || seconds_since(begin) < kTotal;)
    all.push_back(once());
  std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2), less);
  return all[all.size() / 2];
}

}  // namespace

double median_seconds(Backend& backend, const std::function<void()>& step) {
  Batch batch(backend, step);
  return median_of([&] { return batch.run(); }, std::less());
}

std::pair<double, double> median_turn(Backend& backend, const std::function<void()>& first,
                                      const std::function<void()>& second) {
  Batch one(backend, first), other(backend, second);
  return median_of(
      [&] {
        const double seconds = one.run();
        return std::pair(seconds, other.run());
      },
      [](const auto& a, const auto& b) { return a.first * b.second < b.first * a.second; });
}

}  // namespace weft::bench_ops
