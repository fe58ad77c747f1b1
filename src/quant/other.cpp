#include "quant/codes.h"

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

// 2 x 32 bytes of 2 bits, each part 4 groups of 32 elements | d (f16)
void unpack_tq2_0(const uint8_t* b, Unpacked& to) {
  to.factor = f32_of_half_at(b + 64);
  put_ones(to);
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] = b[g / 4 * 32 + l] >> g % 4 * 2 & 3;
}

// scale (e8m0) | 16 bytes of nibbles
void unpack_mxfp4(const uint8_t* b, Unpacked& to) {
  to.factor = half_of_e8m0(b[0]);
  put_nibbles(b + 1, 16, to.codes);
}

// 4 scales (ue4m3), one for 16 elements | 4 x 8 bytes of nibbles
void unpack_nvfp4(const uint8_t* b, Unpacked& to) {
  to.factor = 0;
  for (size_t s = 0; s < 4; ++s) {
    to.parts[s] = half_of_ue4m3(b[s]);
    put_nibbles(b + 4 + 8 * s, 8, to.codes + 16 * s);
  }
}

}  // namespace weft::quant
