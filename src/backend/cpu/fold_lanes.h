#pragma once

#include <algorithm>
#include <limits>

#include "backend/cpu/choose.h"
#include "backend/cpu/wide.h"
#include "backend/elementwise.h"

namespace weft::cpu {

constexpr double start_of(Fold fold) {
  switch (fold) {
    case Fold::prod:
      return 1;
    case Fold::max:
      return -std::numeric_limits<double>::infinity();
    case Fold::min:
      return std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

template <typename T>
T join(Fold fold, T a, T b) {
  switch (fold) {
    case Fold::prod:
      return a * b;
    case Fold::max:
      return ((b > a) | (b != b)) ? b : a;  // once NaN, always NaN
    case Fold::min:
      return ((b < a) | (b != b)) ? b : a;
    default:
      return a + b;
  }
}

/// What the elements of a row fold to, part by part. Lanes lie side by side and stay apart until the row
/// ends: joined after every 512 elements, a sum takes 1.4 times as long.
class FoldLanes {
 public:
  explicit FoldLanes(Fold fold) : fold_(fold) { clear(); }

  void clear() { std::fill_n(lanes_, kLanes, start_of(fold_)); }
  void add(const float* x, int64_t n) { with_fold<Add>(x, n, lanes_); }
  double total() {
    with_fold<Join>(lanes_);
    return lanes_[0];
  }

 private:
  static constexpr int64_t kLanes = kChooseLanes;

  template <Fold kFold>
  struct Add {
    static void run(const float* x, int64_t n, double* lanes) {
      if constexpr (kFold == Fold::prod)
        multiply(x, n, lanes);
      else if constexpr (kFold == Fold::sum)
        sum(x, n, lanes);
      else
        choose(x, n, lanes);
    }
    /// In double from the start: products leave f32's range soon.
    static void multiply(const float* x, int64_t n, double* lanes) {
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes)
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] *= static_cast<double>(x[i + l]);
      for (int64_t l = 0; i < n; ++i, ++l) lanes[l] *= static_cast<double>(x[i]);
    }
    /// Sums move to double before they lose anything.
    static void sum(const float* x, int64_t n, double* lanes) {
      for (int64_t i = 0; i < n;) {
        const int64_t end = std::min(n, i + 16 * kLanes);
        float sums[kLanes] = {};
        for (; i + kLanes <= end; i += kLanes)
          for (int64_t l = 0; l < kLanes; ++l) sums[l] += x[i + l];
        for (int64_t l = 0; i < end; ++i, ++l) sums[l] += x[i];
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] += static_cast<double>(sums[l]);
      }
    }
    static void choose(const float* x, int64_t n, double* lanes) {
      float chosen[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) chosen[l] = static_cast<float>(lanes[l]);
      choose_lanes<kFold == Fold::max>(x, n, chosen);
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = static_cast<double>(chosen[l]);
    }
  };

  template <Fold kFold>
  struct Join {
    static void run(double* lanes) {
      for (int64_t half = kLanes / 2; half > 0; half /= 2)
        for (int64_t l = 0; l < half; ++l) lanes[l] = join(kFold, lanes[l], lanes[l + half]);
    }
  };

  template <template <Fold> typename Loop, typename... Args>
  void with_fold(Args... args) const {
    switch (fold_) {
      case Fold::prod:
        return wide<Loop<Fold::prod>::run>(args...);
      case Fold::max:
        return wide<Loop<Fold::max>::run>(args...);
      case Fold::min:
        return wide<Loop<Fold::min>::run>(args...);
      default:
        return wide<Loop<Fold::sum>::run>(args...);
    }
  }

  Fold fold_;
  alignas(64) double lanes_[kLanes];
};

}  // namespace weft::cpu
