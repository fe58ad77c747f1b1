#include <algorithm>
#include <cmath>

#include "quant/codes.h"
#include "quant/search.h"

/// Blocks of 32 with one scale d (f16): q*_0 are symmetric, q*_1 add a minimum m (f16).
namespace weft::quant {
namespace {

void put_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (size_t i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

void take_fifth_bits(const uint8_t* codes, uint8_t* b) {
  uint32_t bits = 0;
  for (size_t i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  put_u32(b, bits);
}

/// 1 / d, of which the codes are made; d itself is stored as f16.
float inverse(float d) {
  return d != 0 ? 1 / d : 0;
}

/// Without its fraction. Next to the smallest d its inverse is infinite: the codes of such a block, whose d
/// is stored as zero, are zero.
uint8_t whole(float x, uint8_t most) {
  return x > 0 && x < 256 ? std::min(most, static_cast<uint8_t>(x)) : uint8_t{0};
}

/// The peak gets the code 0.
float symmetric_codes(const float* x, int most, uint8_t* codes) {
  const float d = peak({x, 32}) / static_cast<float>(-most), id = inverse(d);
  const float middle = static_cast<float>(most) + 0.5f;
  for (size_t i = 0; i < 32; ++i) codes[i] = whole(x[i] * id + middle, static_cast<uint8_t>(2 * most - 1));
  return d;
}

ScaleMin affine_codes(const float* x, uint8_t most, uint8_t* codes) {
  const float min = *std::min_element(x, x + 32), max = *std::max_element(x, x + 32);
  const float d = (max - min) / static_cast<float>(most), id = inverse(d);
  for (size_t i = 0; i < 32; ++i) codes[i] = whole((x[i] - min) * id + 0.5f, most);
  return {.scale = d, .min = min};
}

}  // namespace

// d | 16 bytes of nibbles
void unpack_q4_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  put_nibbles(b + 2, 16, to.codes);
}
void pack_q4_0(const float* x, uint8_t* b) {
  uint8_t codes[32];
  put_half(b, symmetric_codes(x, 8, codes));
  take_nibbles(codes, 16, b + 2);
}

// d | m | 16 bytes of nibbles
void unpack_q4_1(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_nibbles(b + 4, 16, to.codes);
}
void pack_q4_1(const float* x, uint8_t* b) {
  uint8_t codes[32];
  const ScaleMin s = affine_codes(x, 15, codes);
  put_half(b, s.scale);
  put_half(b + 2, s.min);
  take_nibbles(codes, 16, b + 4);
}

// d | 32 fifth bits | 16 bytes of nibbles
void unpack_q5_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  put_nibbles(b + 6, 16, to.codes);
  put_fifth_bits(u32_at(b + 2), to.codes);
}
void pack_q5_0(const float* x, uint8_t* b) {
  uint8_t codes[32];
  put_half(b, symmetric_codes(x, 16, codes));
  take_fifth_bits(codes, b + 2);
  take_nibbles(codes, 16, b + 6);
}

// d | m | 32 fifth bits | 16 bytes of nibbles
void unpack_q5_1(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_nibbles(b + 8, 16, to.codes);
  put_fifth_bits(u32_at(b + 4), to.codes);
}
void pack_q5_1(const float* x, uint8_t* b) {
  uint8_t codes[32];
  const ScaleMin s = affine_codes(x, 31, codes);
  put_half(b, s.scale);
  put_half(b + 2, s.min);
  take_fifth_bits(codes, b + 4);
  take_nibbles(codes, 16, b + 8);
}

// d | 32 signed bytes
void unpack_q8_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  for (size_t i = 0; i < 32; ++i) to.codes[i] = b[2 + i];
}
void pack_q8_0(const float* x, uint8_t* b) {
  const float d = std::abs(peak({x, 32})) / 127, id = inverse(d);
  put_half(b, d);
  for (size_t i = 0; i < 32; ++i) {
    const float level = std::round(x[i] * id);
    b[2 + i] = std::abs(level) <= 127 ? static_cast<uint8_t>(static_cast<int>(level)) : uint8_t{0};
  }
}

}  // namespace weft::quant
