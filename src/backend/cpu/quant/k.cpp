#include "backend/cpu/quant/blocks.h"

/// Blocks of 256 in 8 groups g of 32 lanes l, with small integer scales below one f16 scale d (and dmin, the
/// scale of the minima). Bits of several groups share a byte: lane l of group g is a shift within byte l.
namespace weft::quant {
namespace {

/// Scale and minimum of the 8 groups of q4_k and q5_k: 6 bits each in 12 bytes. Bytes 0-3 hold the scales of
/// groups 0-3, bytes 4-7 the minima; bytes 8-11 hold the low nibbles of scale and minimum of groups 4-7,
/// whose upper 2 bits are the upper bits of bytes 0-7.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* s, size_t g) {
  if (g < 4) return {s[g] & 63, s[g + 4] & 63};
  const size_t i = g - 4;
  return {(s[8 + i] & 15) | s[i] >> 6 << 4, s[8 + i] >> 4 | s[4 + i] >> 6 << 4};
}

/// The 16 scales of q3_k: 6 bits each in 12 bytes, less 32. Bytes 0-7 hold the low nibbles of scales 0-7 and
/// 8-15; byte 8 + s % 4 holds the upper 2 bits of scales s, s + 4, s + 8, s + 12.
int q3_scale(const uint8_t* p, size_t s) {
  const int low = p[s % 8] >> 4 * (s / 8) & 15, high = p[8 + s % 4] >> 2 * (s / 4) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// 16 bytes: scale and minimum (nibbles) of 16 elements | 64 bytes of 2 bits | d | dmin
void decode_q2_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 84>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b + 80), dmin = f16_at(b + 82);
    for (size_t s = 0; s < 16; ++s) {
      const uint8_t* q = b + 16 + s / 8 * 32 + s % 2 * 16;
      const size_t shift = s / 2 % 4 * 2;
      const float scale = d * static_cast<float>(b[s] & 15), min = dmin * static_cast<float>(b[s] >> 4);
      for (size_t i = 0; i < 16; ++i) y[16 * s + i] = scale * static_cast<float>(q[i] >> shift & 3) - min;
    }
  });
}

// 32 bytes of third bits | 64 bytes of 2 bits | 12 bytes of scales, one for 16 elements | d
void decode_q3_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 110>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b + 108);
    for (size_t s = 0; s < 16; ++s) {
      const uint8_t *third = b + s % 2 * 16, *q = b + 32 + s / 8 * 32 + s % 2 * 16;
      const size_t g = s / 2, shift = g % 4 * 2;
      const float scale = d * static_cast<float>(q3_scale(b + 96, s));
      for (size_t i = 0; i < 16; ++i)
        y[16 * s + i] = scale * static_cast<float>(((q[i] >> shift & 3) | (third[i] >> g & 1) << 2) - 4);
    }
  });
}

// d | dmin | 12 bytes of scales and minima, one for each group | 128 bytes of nibbles
void decode_q4_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 144>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b), dmin = f16_at(b + 2);
    for (size_t g = 0; g < 8; ++g) {
      const uint8_t* q = b + 16 + g / 2 * 32;
      const auto [s, m] = scale_min(b + 4, g);
      const float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
      const size_t shift = g % 2 * 4;
      for (size_t l = 0; l < 32; ++l) y[32 * g + l] = scale * static_cast<float>(q[l] >> shift & 15) - min;
    }
  });
}

// d | dmin | 12 bytes of scales and minima | 32 bytes of fifth bits | 128 bytes of nibbles
void decode_q5_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 176>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b), dmin = f16_at(b + 2);
    for (size_t g = 0; g < 8; ++g) {
      const uint8_t *fifth = b + 16, *q = b + 48 + g / 2 * 32;
      const auto [s, m] = scale_min(b + 4, g);
      const float scale = d * static_cast<float>(s), min = dmin * static_cast<float>(m);
      const size_t shift = g % 2 * 4;
      for (size_t l = 0; l < 32; ++l)
        y[32 * g + l] = scale * static_cast<float>((q[l] >> shift & 15) | (fifth[l] >> g & 1) << 4) - min;
    }
  });
}

// 128 bytes of nibbles | 64 bytes of upper 2 bits | 16 signed scales, one for 16 elements | d
void decode_q6_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 210>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b + 208);
    for (size_t s = 0; s < 16; ++s) {
      // Within each half of the block: groups 0 and 2 share 32 bytes of nibbles, 1 and 3 the next 32.
      const size_t half = s / 8, g = s / 2 % 4, lane = s % 2 * 16;
      const uint8_t *low = b + half * 64 + g % 2 * 32 + lane, *high = b + 128 + half * 32 + lane;
      const size_t low_shift = g / 2 * 4, high_shift = g * 2;
      const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + s]));
      for (size_t i = 0; i < 16; ++i)
        y[16 * s + i] =
            scale * static_cast<float>(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
    }
  });
}

// d (f32) | 256 signed bytes | 16 sums of 16 elements, which are for dot products
void decode_q8_k(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 292>(blocks, out, count, [](Block b, Values y) {
    const float d = f32_at(b);
    for (size_t i = 0; i < 256; ++i) y[i] = d * static_cast<float>(static_cast<int8_t>(b[4 + i]));
  });
}

}  // namespace weft::quant
