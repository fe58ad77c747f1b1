#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

/// How an encoder finds its scales: ggml's methods, operation for operation in the same order. A scale that
/// differs in the last bit rounds to other codes, and files are compared byte by byte.
namespace weft::quant {

constexpr float kSmallestPeak = 1e-15f;  ///< below it a group counts as zero

/// The integer nearest to x within [low, high]; to even where two are equally near.
inline float nearest(float x, float low, float high) {
  constexpr float kNoFraction = 12582912;  // 1.5 * 2^23: a sum with it has no bits below 1
  return std::min(std::max(low, x), high) + kNoFraction - kNoFraction;
}

/// The value of largest magnitude, with its sign; the first of several.
float peak(std::span<const float> x);

/// Where in an ascending table the level nearest to x is.
uint8_t nearest_level(std::span<const int8_t> table, float x);

// x = scale * (code - most), codes 0 to 2 most - 1, with the least sum of squared errors weighted by x². A
// group has at most 32 elements.
// Scale and codes are 0 where all of x is.

/// Tries the scale that gives the peak the code 0, and 18 around it.
float search_scale(std::span<const float> x, int most, uint8_t* codes);
/// Begins with the first of these, and changes one code after the other while that helps.
float refine_scale(std::span<const float> x, int most, uint8_t* codes);

struct Affine {
  float scale, min;
};
/// Which scales are tried: those that spread the range of x over most + first + n step codes, n = 0 to last.
struct Tries {
  float first, step;
  int last;
  bool squares;  ///< errors are squared, else absolute
};
/// x = scale * code - min, codes 0 to most, with the least sum of weighted errors. min is never negative.
Affine search_affine(std::span<const float> x, const float* weights, int most, const Tries& tries,
                     uint8_t* codes);

}  // namespace weft::quant
