#include <algorithm>
#include <cmath>

#include "quant/codes.h"
#include "quant/search.h"

/// Ternary weights (tq) and 4-bit floats (mxfp4, nvfp4).
namespace weft::quant {
namespace {

/// Half of 2^(e - 127), as bf16: the levels are twice the values of e2m1. The two smallest are subnormal.
uint32_t half_of_e8m0(uint8_t e) {
  return e < 2 ? 0x20u << e : (e - 1u) << 7;
}

/// Half of an unsigned e4m3 (4 bits of exponent with bias 7, 3 of mantissa) as f16. ggml ignores the top bit,
/// and reads 0x7f, the NaN, as zero.
uint16_t half_of_ue4m3(uint8_t x) {
  if (x == 0x7f) return 0;
  const uint32_t exponent = x >> 3 & 15, mantissa = x & 7;
  if (exponent == 0) return float_to_half(static_cast<float>(mantissa) * 0x1p-10f);
  return static_cast<uint16_t>((exponent + 15 - 7 - 1) << 10 | mantissa << 7);
}

/// Five ternary digits t in a byte, as a fraction: byte / 256 is just above 0.ttttt in base 3. Multiplying by
/// 3^n modulo 256 drops n digits, and the carry out of one more multiplication by 3 is the next digit.
uint8_t ternary(uint8_t byte, int power_of_3) {
  const int rest = byte * power_of_3 & 255;
  return static_cast<uint8_t>(rest * 3 >> 8);
}

/// -1, 0 or 1 as 0, 1, 2.
int digit_of(float x) {
  return x >= 0.5f ? 2 : x <= -0.5f ? 0 : 1;
}

/// n-th digit: element n * stride. The fraction is rounded up, so that `ternary` finds the digits.
uint8_t fraction(const float* x, size_t digits, size_t stride, float inverse) {
  int number = 0;
  for (size_t n = 0; n < 5; ++n) number = 3 * number + (n < digits ? digit_of(x[n * stride] * inverse) : 0);
  return static_cast<uint8_t>((number * 256 + 242) / 243);
}

/// d of ternary weights, which is their largest; returns its inverse.
float put_largest(const float* x, uint8_t* b) {
  const float d = std::abs(peak({x, 256}));
  put_half(b, d);
  return d != 0 ? 1 / d : 0;
}

/// e4m3 without a sign, half an ulp rounded up. ggml makes 448 of everything from 248 on, and so do we.
uint8_t ue4m3_of(float x) {
  if (!(x > 0)) return 0;
  if (x >= 248) return 0x7e;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23) - 127 + 7;
  if (exponent <= 0) return static_cast<uint8_t>(std::min(7.0f, std::floor(x * 512 + 0.5f)));
  const uint32_t rounded = (bits + (1u << 19)) >> 20;  // exponent and 3 bits of mantissa
  return static_cast<uint8_t>(rounded - ((127 - 7) << 3));
}

/// Codes of the values of e2m1 nearest to x / scale, the smaller of two; zero has no sign.
void take_e2m1(const float* x, size_t count, float scale, uint8_t* bytes) {
  const std::span<const int8_t> levels = coding(Type::mxfp4).table;
  uint8_t codes[32] = {};
  float least[32];
  for (size_t i = 0; i < count; ++i) least[i] = std::abs(x[i]);
  for (uint8_t c = 1; c < 8; ++c)
    for (size_t i = 0; i < count; ++i) {
      const float error = std::abs(static_cast<float>(levels[c]) * scale - std::abs(x[i]));
      const auto with_sign = static_cast<uint8_t>(x[i] < 0 ? c | 8 : c);
      codes[i] = error < least[i] ? with_sign : codes[i];
      least[i] = std::min(least[i], error);
    }
  take_nibbles(codes, count / 2, bytes);
}

void put_ones(Unpacked& to) {
  for (uint16_t& part : to.parts) part = 1;
}

}  // namespace

// 32 bytes of 5 digits | 16 bytes of 5 digits | 4 bytes of 4 digits | d (f16). Digit n of byte l is element
// (n, l) of its part.
void unpack_tq1_0(const uint8_t* b, Unpacked& to) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  to.factor = f32_of_half_at(b + 52);
  put_ones(to);
  uint8_t* code = to.codes;
  for (const int power : kPowers)
    for (size_t l = 0; l < 32; ++l) *code++ = ternary(b[l], power);
  for (const int power : kPowers)
    for (size_t l = 32; l < 48; ++l) *code++ = ternary(b[l], power);
  for (size_t n = 0; n < 4; ++n)
    for (size_t l = 48; l < 52; ++l) *code++ = ternary(b[l], kPowers[n]);
}
void pack_tq1_0(const float* x, uint8_t* b) {
  const float inverse = put_largest(x, b + 52);
  for (size_t l = 0; l < 32; ++l) b[l] = fraction(x + l, 5, 32, inverse);
  for (size_t l = 0; l < 16; ++l) b[32 + l] = fraction(x + 160 + l, 5, 16, inverse);
  for (size_t l = 0; l < 4; ++l) b[48 + l] = fraction(x + 240 + l, 4, 4, inverse);
}

// 2 x 32 bytes of 2 bits, each part 4 groups of 32 elements | d (f16)
void unpack_tq2_0(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b + 64);
  put_ones(to);
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] = b[g / 4 * 32 + l] >> g % 4 * 2 & 3;
}
void pack_tq2_0(const float* x, uint8_t* b) {
  const float inverse = put_largest(x, b + 64);
  std::fill_n(b, 64, uint8_t{0});
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l)
      b[g / 4 * 32 + l] |= static_cast<uint8_t>(digit_of(x[32 * g + l] * inverse) << g % 4 * 2);
}

// scale (e8m0) | 16 bytes of nibbles
void unpack_mxfp4(const uint8_t* b, Unpacked& to) {
  to.factor = half_of_e8m0(b[0]);
  put_nibbles(b + 1, 16, to.codes);
}
void pack_mxfp4(const float* x, uint8_t* b) {
  const float max = std::abs(peak({x, 32}));
  const float exponent = max > 0 ? std::floor(std::log2(max)) - 2 + 127 : 0;  // 4 is the power of 2 below 6
  b[0] = static_cast<uint8_t>(std::max(exponent, 0.0f));
  take_e2m1(x, 32, bfloat_to_float(static_cast<uint16_t>(half_of_e8m0(b[0]))), b + 1);
}

// 4 scales (ue4m3), one for 16 elements | 4 x 8 bytes of nibbles
void unpack_nvfp4(const uint8_t* b, Unpacked& to) {
  to.factor = 0;
  for (size_t s = 0; s < 4; ++s) {
    to.parts[s] = half_of_ue4m3(b[s]);
    put_nibbles(b + 4 + 8 * s, 8, to.codes + 16 * s);
  }
}
void pack_nvfp4(const float* x, uint8_t* b) {
  for (size_t s = 0; s < 4; ++s) {
    b[s] = ue4m3_of(std::abs(peak({x + 16 * s, 16})) / 6);
    take_e2m1(x + 16 * s, 16, half_to_float(half_of_ue4m3(b[s])), b + 4 + 8 * s);
  }
}

}  // namespace weft::quant
