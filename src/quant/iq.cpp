#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/codes.h"
#include "quant/grids.h"
#include "quant/search.h"

/// Non-linear types. iq4: a nibble picks one of 16 levels. iq1 to iq3, in blocks of 256: an index picks a
/// point of a grid, that is 8 (iq1, iq2) or 4 (iq3) elements at once; k numbers the groups of 8 elements.
namespace weft::quant {
namespace {

/// 7 stored sign bits; the eighth makes their number even.
int even_signs(uint32_t seven) {
  return static_cast<int>(seven | (std::popcount(seven) & 1u) << 7);
}

/// The elements of one point; a set bit in `signs` is a minus, which is the bit above the point's digits.
template <size_t n>
void put_point(const std::array<uint8_t, n>& point, int signs, uint8_t* codes) {
  constexpr int kSign = n == 8 ? 4 : 8;
  for (size_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(point[i] | (signs >> i & 1) * kSign);
}

/// iq1: all 8 elements are moved, up or down.
void put_moved_point(int index, bool down, uint8_t* codes) {
  put_point(kGridIq1[static_cast<size_t>(index)], down ? 255 : 0, codes);
}

/// d (0.5 + s) / 4 and the like, as an odd number 2 s + 1 of a scaled d.
void put_scaled(uint32_t d_bits, float factor, Unpacked& to) {
  to.factor = std::bit_cast<uint32_t>(std::bit_cast<float>(d_bits) * factor);
}
uint16_t odd(int s) {
  return static_cast<uint16_t>(2 * s + 1);
}

/// iq4: the best scale of 32 elements among those that move the peak to a place around the first level.
float search_iq4_scale(std::span<const float> x, std::span<const int8_t> levels) {
  const float max = peak(x), first = levels[0];
  if (std::abs(max) < kSmallestPeak) return 0;
  float scale = 0, best = 0;
  const auto try_inverse = [&](float inverse, bool always) {
    float xq = 0, qq = 0;
    for (const float value : x) {
      const float q = levels[nearest_level(levels, inverse * value)], w = value * value;
      xq += w * q * value;
      qq += w * q * q;
    }
    if (!(qq > 0) || !(always || xq * xq > best * qq)) return;
    scale = xq / qq;
    best = scale * xq;
  };
  try_inverse(1 / (-max / first), true);
  for (int n = -7; n <= 7; ++n) try_inverse((static_cast<float>(n) + first) / max, false);
  return scale;
}

void take_iq4(const float* x, float scale, std::span<const int8_t> levels, uint8_t* bytes) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  uint8_t codes[32];
  for (size_t i = 0; i < 32; ++i) codes[i] = nearest_level(levels, inverse * x[i]);
  take_nibbles(codes, 16, bytes);
}

/// Which points of iq3_s are nearest to any four digits of 3 bits.
class NearPoints {
 public:
  NearPoints() {
    for (size_t i = 0; i < kGridIq3S.size(); ++i)
      near_[number(kGridIq3S[i].data())] = {static_cast<uint16_t>(i)};
    for (size_t n = 0; n < near_.size(); ++n)
      if (near_[n].empty()) find_near(n);
  }

  /// The point for digits, the best of the near ones where they are none: least weighted error of scale *
  /// level.
  uint16_t find(const uint8_t* digits, const float* x, const float* weights, float scale) const {
    const std::vector<uint16_t>& points = near_[number(digits)];
    uint16_t best = points[0];
    float least = std::numeric_limits<float>::max();
    for (size_t p = 0; p < points.size() && points.size() > 1; ++p) {
      float error = 0;
      for (size_t i = 0; i < 4; ++i) {
        const float difference = scale * static_cast<float>(2 * kGridIq3S[points[p]][i] + 1) - x[i];
        error += weights[i] * difference * difference;
      }
      if (error < least) least = error, best = points[p];
    }
    return best;
  }
  bool has(const uint8_t* digits) const { return near_[number(digits)].size() == 1; }

 private:
  static size_t number(const uint8_t* digits) {
    return static_cast<size_t>(digits[0] | digits[1] << 3 | digits[2] << 6 | digits[3] << 9);
  }

  /// Those at the three smallest distances, nearest first.
  void find_near(size_t n) {
    std::vector<std::pair<int, uint16_t>> all;
    for (size_t p = 0; p < kGridIq3S.size(); ++p) {
      int distance = 0;
      for (size_t i = 0; i < 4; ++i) {
        const int difference = kGridIq3S[p][i] - static_cast<int>(n >> 3 * i & 7);
        distance += difference * difference;
      }
      all.emplace_back(distance, static_cast<uint16_t>(p));
    }
    std::ranges::sort(all);
    int distances = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      distances += i == 0 || all[i].first != all[i - 1].first;
      if (distances > 3) break;
      near_[n].push_back(all[i].second);
    }
  }

  std::array<std::vector<uint16_t>, 4096> near_;
};

/// 32 elements of iq3_s: 8 points for their magnitudes.
struct Iq3Group {
  float scale = 0;
  std::array<uint16_t, 8> points{};
};

/// Tries 19 scales around the one that gives the largest magnitude the last level; if the best needed points
/// that are only near, once more with the scale that fits them.
Iq3Group search_iq3_s(const float* magnitudes) {
  static const NearPoints near;
  const float max = *std::max_element(magnitudes, magnitudes + 32);
  if (max == 0) return {};
  float weights[32], roots[32];
  for (size_t i = 0; i < 32; ++i)
    weights[i] = magnitudes[i] * magnitudes[i], roots[i] = std::sqrt(weights[i]);
  const auto choose = [&](float inverse, float scale, std::array<uint16_t, 8>& points) {
    bool exact = true;
    for (size_t k = 0; k < 8; ++k) {
      uint8_t digits[4];
      for (size_t i = 0; i < 4; ++i)
        digits[i] = static_cast<uint8_t>(nearest(0.5f * (inverse * magnitudes[4 * k + i] - 1), 0, 7));
      exact = exact && near.has(digits);
      points[k] = near.find(digits, magnitudes + 4 * k, roots + 4 * k, scale);
    }
    return exact;
  };
  const auto fit = [&](const std::array<uint16_t, 8>& points) {
    float xq = 0, qq = 0;
    for (size_t i = 0; i < 32; ++i) {
      const float q = static_cast<float>(2 * kGridIq3S[points[i / 4]][i % 4] + 1);
      xq += weights[i] * magnitudes[i] * q;
      qq += weights[i] * q * q;
    }
    return std::pair(xq, qq);
  };
  Iq3Group best{.scale = max / 15};
  bool exact = false;
  float gain = 0;
  for (int n = -9; n <= 9; ++n) {
    const float inverse = (15 + static_cast<float>(n) * 0.2f) / max;
    std::array<uint16_t, 8> points;
    const bool all_exact = choose(inverse, 1 / inverse, points);
    const auto [xq, qq] = fit(points);
    if (qq > 0 && xq * xq > gain * qq) {
      best = {.scale = xq / qq, .points = points};
      gain = best.scale * xq;
      exact = all_exact;
    }
  }
  if (!exact && best.scale > 0) {
    choose(1 / best.scale, best.scale, best.points);
    const auto [xq, qq] = fit(best.points);
    if (qq > 0) best.scale = xq / qq;
  }
  return best;
}

}  // namespace

// d (f16) | 16 bytes of nibbles
void unpack_iq4_nl(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  put_nibbles(b + 2, 16, to.codes);
}
void pack_iq4_nl(const float* x, uint8_t* b) {
  const std::span<const int8_t> levels = coding(Type::iq4_nl).table;
  const float scale = search_iq4_scale({x, 32}, levels);
  put_half(b, scale);
  take_iq4(x, scale, levels, b + 2);
}

// d (f16) | 8 x 2 upper bits of scales | 8 nibbles of scales, one for 32 elements | 128 bytes of nibbles
void unpack_iq4_xs(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b);
  const int high = u16_at(b + 2);
  for (size_t g = 0; g < 8; ++g) {
    const int low = b[4 + g / 2] >> g % 2 * 4 & 15;
    to.parts[2 * g] = to.parts[2 * g + 1] = static_cast<uint8_t>((low | (high >> 2 * g & 3) << 4) - 32);
    put_nibbles(b + 8 + 16 * g, 16, to.codes + 32 * g);
  }
}
void pack_iq4_xs(const float* x, uint8_t* b) {
  const std::span<const int8_t> levels = coding(Type::iq4_xs).table;
  float found[8];
  for (size_t g = 0; g < 8; ++g) found[g] = search_iq4_scale({x + 32 * g, 32}, levels);
  const float d = -peak(found) / 32, inverse = d != 0 ? 1 / d : 0;
  put_half(b, d);
  std::fill_n(b + 2, 6, uint8_t{0});
  int high = 0;
  for (size_t g = 0; g < 8; ++g) {
    const float scale = nearest(inverse * found[g], -32, 31);
    take_iq4(x + 32 * g, d * scale, levels, b + 8 + 16 * g);
    const int stored = static_cast<int>(scale) + 32;
    b[4 + g / 2] |= static_cast<uint8_t>((stored & 15) << g % 2 * 4);
    high |= stored >> 4 << 2 * g;
  }
  put_u16(b + 2, static_cast<uint16_t>(high));
}

// d (f16) | for each 32 elements: 4 indices of 8 bits | 4 x 7 signs and a scale of 4 bits
void unpack_iq2_xxs(const uint8_t* b, Unpacked& to) {
  put_scaled(f32_of_half_at(b), 0.125f, to);
  for (size_t g = 0; g < 8; ++g) {
    const uint8_t* index = b + 2 + 8 * g;
    const uint32_t rest = u32_at(index + 4);
    to.parts[2 * g] = to.parts[2 * g + 1] = odd(static_cast<int>(rest >> 28));
    for (size_t k = 0; k < 4; ++k)
      put_point(kGridIq2Xxs[index[k]], even_signs(rest >> 7 * k & 127), to.codes + 32 * g + 8 * k);
  }
}

// d (f16) | 32 x (9 bits of index, 7 signs) | 16 nibbles of scales, one for 16 elements
void unpack_iq2_xs(const uint8_t* b, Unpacked& to) {
  put_scaled(f32_of_half_at(b), 0.125f, to);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = odd(b[66 + s / 2] >> s % 2 * 4 & 15);
  for (size_t k = 0; k < 32; ++k) {
    const uint32_t q = u16_at(b + 2 + 2 * k);
    put_point(kGridIq2Xs[q & 511], even_signs(q >> 9), to.codes + 8 * k);
  }
}

// d (f16) | 32 indices | 32 bytes of signs | 32 x 2 upper bits of indices | 16 nibbles of scales
void unpack_iq2_s(const uint8_t* b, Unpacked& to) {
  put_scaled(f32_of_half_at(b), 0.125f, to);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = odd(b[74 + s / 2] >> s % 2 * 4 & 15);
  for (size_t k = 0; k < 32; ++k) {
    const auto index = static_cast<size_t>(b[2 + k] | (b[66 + k / 4] >> k % 4 * 2 & 3) << 8);
    put_point(kGridIq2S[index], b[34 + k], to.codes + 8 * k);
  }
}

// d (f16) | 64 indices | for each 32 elements: 4 x 7 signs and a scale of 4 bits
void unpack_iq3_xxs(const uint8_t* b, Unpacked& to) {
  put_scaled(f32_of_half_at(b), 0.25f, to);
  for (size_t k = 0; k < 32; ++k) {
    const uint8_t* index = b + 2 + 2 * k;
    const uint32_t rest = u32_at(b + 66 + k / 4 * 4);
    to.parts[k / 2] = odd(static_cast<int>(rest >> 28));
    const int signs = even_signs(rest >> k % 4 * 7 & 127);
    put_point(kGridIq3Xxs[index[0]], signs, to.codes + 8 * k);
    put_point(kGridIq3Xxs[index[1]], signs >> 4, to.codes + 8 * k + 4);
  }
}

// d (f16) | 64 indices | 64 ninth bits of indices | 32 bytes of signs | 8 nibbles of scales
void unpack_iq3_s(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b);
  for (size_t k = 0; k < 32; ++k) {
    const int ninth = b[66 + k / 4] >> k % 4 * 2, signs = b[74 + k];
    to.parts[k / 2] = odd(b[106 + k / 8] >> k / 4 % 2 * 4 & 15);
    put_point(kGridIq3S[static_cast<size_t>(b[2 + 2 * k] | (ninth & 1) << 8)], signs, to.codes + 8 * k);
    put_point(kGridIq3S[static_cast<size_t>(b[3 + 2 * k] | (ninth & 2) << 7)], signs >> 4,
              to.codes + 8 * k + 4);
  }
}
// As ggml, but for groups behind one of zeros, which ggml writes in the wrong place.
void pack_iq3_s(const float* x, uint8_t* b) {
  std::fill_n(b, 110, uint8_t{0});
  float scales[8], top = 0;
  for (size_t g = 0; g < 8; ++g) {
    float magnitudes[32];
    for (size_t i = 0; i < 32; ++i) {
      magnitudes[i] = std::abs(x[32 * g + i]);
      b[74 + 4 * g + i / 8] |= static_cast<uint8_t>((x[32 * g + i] < 0 ? 1 : 0) << i % 8);
    }
    const Iq3Group group = search_iq3_s(magnitudes);
    for (size_t k = 0; k < 8; ++k) {
      b[2 + 8 * g + k] = static_cast<uint8_t>(group.points[k]);
      b[66 + g] |= static_cast<uint8_t>(group.points[k] >> 8 << k);
    }
    scales[g] = group.scale;
    top = std::max(top, group.scale);
  }
  if (top == 0) return;
  const float d = top / 31, inverse = 1 / d;
  put_half(b, d * 1.033f);  // the factor is ggml's
  for (size_t g = 0; g < 8; ++g)
    b[106 + g / 2] |=
        static_cast<uint8_t>(static_cast<int>(nearest(0.5f * (inverse * scales[g] - 1), 0, 15)) << g % 2 * 4);
}

// d (f16) | 32 indices | for each 32 elements: 4 x 3 upper bits of indices, a scale of 3 bits, down
void unpack_iq1_s(const uint8_t* b, Unpacked& to) {
  put_scaled(f32_of_half_at(b), 0.125f, to);
  for (size_t k = 0; k < 32; ++k) {
    const int rest = u16_at(b + 34 + k / 4 * 2);
    to.parts[k / 2] = odd(rest >> 12 & 7);
    put_moved_point(b[2 + k] | (rest >> k % 4 * 3 & 7) << 8, rest >> 15, to.codes + 8 * k);
  }
}

// 32 indices | 32 nibbles: 3 upper bits of the index, down | 4 x (4 scales of 3 bits, a nibble of d (f16))
void unpack_iq1_m(const uint8_t* b, Unpacked& to) {
  int d_bits = 0;
  for (size_t i = 0; i < 4; ++i) d_bits |= u16_at(b + 48 + 2 * i) >> 12 << 4 * i;
  put_scaled(std::bit_cast<uint32_t>(half_to_float(static_cast<uint16_t>(d_bits))), 0.125f, to);
  for (size_t k = 0; k < 32; ++k) {
    const int rest = b[32 + k / 2] >> k % 2 * 4;
    to.parts[k / 2] = odd(u16_at(b + 48 + k / 8 * 2) >> k / 2 % 4 * 3 & 7);  // one for 16 elements
    put_moved_point(b[k] | (rest & 7) << 8, rest & 8, to.codes + 8 * k);
  }
}

}  // namespace weft::quant
