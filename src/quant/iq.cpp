#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quant/codes.h"
#include "quant/grids.h"
#include "quant/search.h"

/// Non-linear types. iq4: a nibble picks one of 16 levels. iq1 to iq3, in blocks of 256: an index picks a
/// point of a grid, that is 8 (iq1, iq2) or 4 (iq3) elements at once; k numbers the groups of 8 elements.
/// Encoders of these are in grid_pack.cpp and iq1_pack.cpp.
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
