#pragma once

#include <bit>
#include <cstdint>

/// f16 and bf16 as bits. Conversions round to nearest even; overflow becomes infinity; NaN stays NaN.
namespace weft {

inline float half_to_float(uint16_t h) {
  // As bits of an f32 the value is 2^112 too small; the product is exact, subnormals included. No branch:
  // loops over halves are vectorised.
  const uint32_t rest = static_cast<uint32_t>(h & 0x7fff) << 13, sign = static_cast<uint32_t>(h & 0x8000)
                                                                        << 16;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  return std::bit_cast<float>((rest >= 0x0f800000 ? rest | 0x7f800000 : finite) | sign);
}

inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and above round to infinity
  if (rest < 0x38800000) {  // below the smallest normal: let the f32 adder round at the subnormal's last bit
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t odd = rest >> 13 & 1;
  return static_cast<uint16_t>(sign | (rest - (112u << 23) + 0xfff + odd) >> 13);
}

inline float bfloat_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

inline uint16_t float_to_bfloat(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace weft
