#include "quant/search.h"

#include <algorithm>
#include <cmath>

namespace weft::quant {
namespace {

constexpr size_t kMostElements = 32;

/// Sums over x (weights x²) for a choice of levels l: the best scale is xl / ll, and takes xl² / ll off the
/// error.
struct Fit {
  float xl = 0, ll = 0;

  void add(float x, float l) {
    const float w = x * x;
    xl += w * x * l;
    ll += w * l * l;
  }
  float scale() const { return ll > 0 ? xl / ll : 0; }
};

/// Apart from the sums, whose order matters, so that it is vectorised.
void nearest_levels(std::span<const float> x, float inverse_scale, float most, float* levels) {
  for (size_t i = 0; i < x.size(); ++i) levels[i] = nearest(inverse_scale * x[i], -most, most - 1);
}

void put_codes(std::span<const float> x, const float* levels, float offset, uint8_t* codes) {
  for (size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<uint8_t>(levels[i] + offset);
}

float error_of(std::span<const float> x, const float* weights, const float* levels, Affine fit,
               bool squares) {
  float sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float difference = fit.scale * levels[i] + fit.min - x[i];
    sum += weights[i] * (squares ? difference * difference : std::abs(difference));
  }
  return sum;
}

}  // namespace

float peak(std::span<const float> x) {
  float result = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(result)) result = value;
  return result;
}

uint8_t nearest_level(std::span<const int8_t> table, float x) {
  if (!(x > static_cast<float>(table.front()))) return 0;  // NaN, too: infinity times zero
  if (x >= static_cast<float>(table.back())) return static_cast<uint8_t>(table.size() - 1);
  const auto above = static_cast<size_t>(
      std::ranges::count_if(table, [x](int8_t level) { return x >= static_cast<float>(level); }));
  const bool lower = x - static_cast<float>(table[above - 1]) < static_cast<float>(table[above]) - x;
  return static_cast<uint8_t>(lower ? above - 1 : above);
}

float search_scale(std::span<const float> x, int most, uint8_t* codes) {
  std::fill_n(codes, x.size(), uint8_t{0});
  const float max = peak(x), top = static_cast<float>(most);
  if (std::abs(max) < kSmallestPeak) return 0;
  float scale = 0, best = 0, levels[kMostElements];
  const auto try_inverse = [&](float inverse, bool always) {
    nearest_levels(x, inverse, top, levels);
    Fit fit;
    for (size_t i = 0; i < x.size(); ++i) fit.add(x[i], levels[i]);
    if (!always && !(fit.ll > 0 && fit.xl * fit.xl > best * fit.ll)) return;
    put_codes(x, levels, top, codes);
    scale = fit.scale();
    best = scale * fit.xl;
  };
  try_inverse(-top / max, true);
  for (int n = -9; n <= 9; ++n)
    if (n != 0) try_inverse(-(top + 0.1f * static_cast<float>(n)) / max, false);
  return scale;
}

float refine_scale(std::span<const float> x, int most, uint8_t* codes) {
  std::fill_n(codes, x.size(), uint8_t{0});
  const float max = peak(x), top = static_cast<float>(most);
  if (std::abs(max) < kSmallestPeak) return 0;
  float levels[kMostElements];
  nearest_levels(x, -top / max, top, levels);
  Fit sums;
  for (size_t i = 0; i < x.size(); ++i) sums.add(x[i], levels[i]);
  bool changed = true;
  for (int round = 0; round < 5 && changed; ++round) {
    changed = false;
    for (size_t i = 0; i < x.size(); ++i) {
      const float w = x[i] * x[i];
      Fit others{.xl = sums.xl - w * x[i] * levels[i], .ll = sums.ll - w * levels[i] * levels[i]};
      if (!(others.xl > 0)) continue;
      const float better = nearest(x[i] * others.ll / others.xl, -top, top - 1);
      if (better == levels[i]) continue;
      others.add(x[i], better);
      if (others.ll > 0 && others.xl * others.xl * sums.ll > sums.xl * sums.xl * others.ll) {
        levels[i] = better;
        sums = others;
        changed = true;
      }
    }
  }
  put_codes(x, levels, top, codes);
  return sums.scale();
}

Affine search_affine(std::span<const float> x, const float* weights, int most, const Tries& tries,
                     uint8_t* codes) {
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = std::min(low, 0.0f);
  std::fill_n(codes, x.size(), uint8_t{0});
  if (high == low) return {.scale = 0, .min = -low};

  const float top = static_cast<float>(most);
  float levels[kMostElements];
  const auto spread = [&](float parts, float from) {
    const float inverse = parts / (high - from);
    for (size_t i = 0; i < x.size(); ++i) levels[i] = nearest(inverse * (x[i] - from), 0, top);
    return 1 / inverse;
  };
  Affine best{.scale = spread(top, low), .min = low};
  put_codes(x, levels, 0, codes);
  float least = error_of(x, weights, levels, best, tries.squares);
  for (int n = 0; n <= tries.last; ++n) {
    spread(tries.first + tries.step * static_cast<float>(n) + top, best.min);  // the best minimum so far
    float sum_l = 0, sum_ll = 0, sum_xl = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float wl = weights[i] * levels[i];
      sum_l += wl;
      sum_ll += wl * levels[i];
      sum_xl += wl * x[i];
    }
    const float determinant = sum_w * sum_ll - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    Affine fit{.scale = (sum_w * sum_xl - sum_x * sum_l) / determinant,
               .min = (sum_ll * sum_x - sum_l * sum_xl) / determinant};
    if (fit.min > 0) fit = {.scale = sum_xl / sum_ll, .min = 0};
    const float error = error_of(x, weights, levels, fit, tries.squares);
    if (error < least) {
      put_codes(x, levels, 0, codes);
      least = error;
      best = fit;
    }
  }
  return {.scale = best.scale, .min = -best.min};
}

}  // namespace weft::quant
