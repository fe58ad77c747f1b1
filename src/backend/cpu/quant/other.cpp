#include <cstring>

#include "backend/cpu/quant/blocks.h"

/// Plain floats, ternary weights (tq) and 4-bit floats (mxfp4, nvfp4).
namespace weft::quant {
namespace {

/// Twice the values of e2m1, so that they are integers; the scales below are halved in return.
constexpr int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Half of 2^(e - 127). The two smallest are subnormal.
float half_of_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1u) << 23);
}

/// Half of an unsigned e4m3: 4 bits of exponent with bias 7, 3 of mantissa. ggml ignores the top bit, and
/// reads 0x7f, the NaN, as zero.
float half_of_ue4m3(uint8_t x) {
  if (x == 0x7f) return 0;
  const uint32_t exponent = x >> 3 & 15, mantissa = x & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return std::bit_cast<float>((exponent + 127 - 7 - 1) << 23 | mantissa << 20);
}

/// Five ternary digits t in a byte, as a fraction: byte / 256 is just above 0.ttttt in base 3. Multiplying by
/// 3^n modulo 256 drops n digits, and the carry out of one more multiplication by 3 is the next digit.
float ternary(uint8_t byte, int power_of_3, float d) {
  const int rest = byte * power_of_3 & 255;
  return d * static_cast<float>((rest * 3 >> 8) - 1);
}

}  // namespace

void decode_f16(const uint8_t* blocks, float* out, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) out[i] = f16_at(blocks + 2 * i);
}

void decode_bf16(const uint8_t* blocks, float* out, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) out[i] = bfloat_to_float(u16_at(blocks + 2 * i));
}

void decode_f32(const uint8_t* blocks, float* out, uint64_t count) {
  if (count > 0) std::memcpy(out, blocks, 4 * count);
}

// 32 bytes of 5 digits | 16 bytes of 5 digits | 4 bytes of 4 digits | d (f16). Digit n of byte l is element
// (n, l) of its part.
void decode_tq1_0(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 54>(blocks, out, count, [](Block b, Values y) {
    constexpr int kPowers[5] = {1, 3, 9, 27, 81};
    const float d = f16_at(b + 52);
    for (const int power : kPowers)
      for (size_t l = 0; l < 32; ++l) *y++ = ternary(b[l], power, d);
    for (const int power : kPowers)
      for (size_t l = 32; l < 48; ++l) *y++ = ternary(b[l], power, d);
    for (size_t n = 0; n < 4; ++n)
      for (size_t l = 48; l < 52; ++l) *y++ = ternary(b[l], kPowers[n], d);
  });
}

// 2 x 32 bytes of 2 bits, each part 4 groups of 32 elements | d (f16)
void decode_tq2_0(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 66>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b + 64);
    for (size_t g = 0; g < 8; ++g)
      for (size_t l = 0; l < 32; ++l)
        y[32 * g + l] = d * static_cast<float>((b[g / 4 * 32 + l] >> g % 4 * 2 & 3) - 1);
  });
}

// scale (e8m0) | 16 bytes of nibbles
void decode_mxfp4(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 17>(blocks, out, count,
                     [](Block b, Values y) { each_level<16>(b + 1, y, kE2m1, half_of_e8m0(b[0])); });
}

// 4 scales (ue4m3), one for 16 elements | 4 x 8 bytes of nibbles
void decode_nvfp4(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<64, 36>(blocks, out, count, [](Block b, Values y) {
    for (size_t s = 0; s < 4; ++s) each_level<8>(b + 4 + 8 * s, y + 16 * s, kE2m1, half_of_ue4m3(b[s]));
  });
}

}  // namespace weft::quant
