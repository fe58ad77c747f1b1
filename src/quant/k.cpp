#include "quant/codes.h"

/// Blocks of 256 in 8 groups g of 32 lanes l, with small integer scales below one f16 scale d (and dmin, the
/// scale of the minima). Bits of several groups share a byte: lane l of group g is a shift within byte l.
namespace weft::quant {
namespace {

/// Scales and minima of the 8 groups of q4_k and q5_k: 6 bits each in 12 bytes. Bytes 0-3 hold the scales of
/// groups 0-3, bytes 4-7 the minima; bytes 8-11 hold the low nibbles of scale and minimum of groups 4-7,
/// whose upper 2 bits are the upper bits of bytes 0-7.
void put_sixes(const uint8_t* s, uint16_t* parts) {
  for (size_t g = 0; g < 4; ++g) {
    parts[g] = static_cast<uint16_t>((s[g] & 63) | (s[4 + g] & 63) << 8);
    const int scale = (s[8 + g] & 15) | s[g] >> 6 << 4, min = s[8 + g] >> 4 | s[4 + g] >> 6 << 4;
    parts[4 + g] = static_cast<uint16_t>(scale | min << 8);
  }
}

/// q3_k: 6 bits each in 12 bytes, less 32. Bytes 0-7 hold the low nibbles of scales 0-7 and 8-15; byte 8 + s
/// % 4 holds the upper 2 bits of scales s, s + 4, s + 8, s + 12.
int q3_scale(const uint8_t* p, size_t s) {
  const int low = p[s % 8] >> 4 * (s / 8) & 15, high = p[8 + s % 4] >> 2 * (s / 4) & 3;
  return (low | high << 4) - 32;
}

}  // namespace

// 16 bytes: scale and minimum (nibbles) of 16 elements | 64 bytes of 2 bits | d | dmin
void unpack_q2_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b + 80);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = b[s];
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] = b[16 + g / 4 * 32 + l] >> g % 4 * 2 & 3;
}

// 32 bytes of third bits | 64 bytes of 2 bits | 12 bytes of scales, one for 16 elements | d
void unpack_q3_k(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b + 108);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = static_cast<uint8_t>(q3_scale(b + 96, s));
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l)
      to.codes[32 * g + l] =
          static_cast<uint8_t>((b[32 + g / 4 * 32 + l] >> g % 4 * 2 & 3) | (b[l] >> g & 1) << 2);
}

// d | dmin | 12 bytes of scales and minima, one for each group | 128 bytes of nibbles
void unpack_q4_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_sixes(b + 4, to.parts);
  for (size_t pair = 0; pair < 4; ++pair) put_nibbles(b + 16 + 32 * pair, 32, to.codes + 64 * pair);
}

// d | dmin | 12 bytes of scales and minima | 32 bytes of fifth bits | 128 bytes of nibbles
void unpack_q5_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_sixes(b + 4, to.parts);
  for (size_t pair = 0; pair < 4; ++pair) put_nibbles(b + 48 + 32 * pair, 32, to.codes + 64 * pair);
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] |= static_cast<uint8_t>((b[16 + l] >> g & 1) << 4);
}

// 128 bytes of nibbles | 64 bytes of upper 2 bits | 16 signed scales, one for 16 elements | d
void unpack_q6_k(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b + 208);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = b[192 + s];
  for (size_t g = 0; g < 8; ++g) {
    // Within each half of the block: groups 0 and 2 share 32 bytes of nibbles, 1 and 3 the next 32.
    const size_t half = g / 4, low_shift = g % 4 / 2 * 4, high_shift = g % 4 * 2;
    const uint8_t *low = b + half * 64 + g % 2 * 32, *high = b + 128 + half * 32;
    for (size_t l = 0; l < 32; ++l)
      to.codes[32 * g + l] =
          static_cast<uint8_t>((low[l] >> low_shift & 15) | (high[l] >> high_shift & 3) << 4);
  }
}

// d (f32) | 256 signed bytes | 16 sums of 16 elements, which are for dot products
void unpack_q8_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  for (uint16_t& part : to.parts) part = 1;
  for (size_t i = 0; i < 256; ++i) to.codes[i] = b[4 + i];
}

}  // namespace weft::quant
