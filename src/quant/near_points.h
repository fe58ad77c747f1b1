#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quant/grids.h"

namespace weft::quant {

/// Which points of a grid are near to any digits: for encoders, whose elements want digits that may be no
/// point.
template <size_t points, size_t n>
class NearPoints {
 public:
  using Points = Grid<points, n>;
  static constexpr size_t kDigits = n == 8 ? 3 : 8;  ///< values of a digit

  /// Near are the points at the `distances` smallest distances.
  NearPoints(const Points& grid, int distances) : grid_(grid), lists_(count()), exact_(count(), false) {
    for (size_t p = 0; p < points; ++p) {
      lists_[number(grid[p].data())] = {static_cast<uint16_t>(p)};
      exact_[number(grid[p].data())] = true;
    }
    for (size_t i = 0; i < lists_.size(); ++i)
      if (!exact_[i]) find_near(i, distances);
  }

  const Points& grid() const { return grid_; }
  bool has(const uint8_t* digits) const { return exact_[number(digits)]; }

  /// The point of these digits, else the near one with the least weighted error of scale * level.
  uint16_t find(const uint8_t* digits, const float* x, const float* weights, float scale,
                std::span<const float> levels) const {
    const std::vector<uint16_t>& near = lists_[number(digits)];
    uint16_t best = near[0];
    float least = std::numeric_limits<float>::max();
    for (size_t p = 0; p < near.size() && near.size() > 1; ++p) {
      float error = 0;
      for (size_t i = 0; i < n; ++i) {
        const float difference = scale * levels[grid_[near[p]][i]] - x[i];
        error += weights[i] * difference * difference;
      }
      if (error < least) least = error, best = near[p];
    }
    return best;
  }

 private:
  static constexpr size_t count() {
    size_t all = 1;
    for (size_t i = 0; i < n; ++i) all *= kDigits;
    return all;
  }
  static size_t number(const uint8_t* digits) {
    size_t result = 0;
    for (size_t i = n; i-- > 0;) result = result * kDigits + digits[i];
    return result;
  }

  /// The nearest first, of equally near ones the first.
  void find_near(size_t at, int distances) {
    std::array<int, n> digits;
    size_t rest = at;
    for (int& digit : digits) digit = static_cast<int>(rest % kDigits), rest /= kDigits;
    std::array<int, points> far;
    for (size_t p = 0; p < points; ++p) {
      far[p] = 0;
      for (size_t i = 0; i < n; ++i) far[p] += (grid_[p][i] - digits[i]) * (grid_[p][i] - digits[i]);
    }
    int last = -1;
    for (int round = 0; round < distances; ++round) {
      int next = std::numeric_limits<int>::max();
      for (const int distance : far)
        if (distance > last) next = std::min(next, distance);
      for (size_t p = 0; p < points; ++p)
        if (far[p] == next) lists_[at].push_back(static_cast<uint16_t>(p));
      last = next;
    }
  }

  const Points& grid_;
  std::vector<std::vector<uint16_t>> lists_;
  std::vector<bool> exact_;
};

}  // namespace weft::quant
