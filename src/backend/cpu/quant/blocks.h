#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "array/half.h"

/// What the decoders of all families share. Offsets in them are bytes from the start of a block, b.
namespace weft::quant {

/// Decodes `count` consecutive blocks.
using Decode = void(const uint8_t* blocks, float* out, uint64_t count);

// legacy.cpp
Decode decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0;
// k.cpp
Decode decode_q2_k, decode_q3_k, decode_q4_k, decode_q5_k, decode_q6_k, decode_q8_k;
// iq.cpp
Decode decode_iq4_nl, decode_iq4_xs, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s;
Decode decode_iq3_xxs, decode_iq3_s, decode_iq1_s, decode_iq1_m;
// other.cpp
Decode decode_f16, decode_bf16, decode_f32, decode_tq1_0, decode_tq2_0, decode_mxfp4, decode_nvfp4;

// Multi-byte fields are little-endian and may lie at odd addresses.
inline uint16_t u16_at(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t u32_at(const uint8_t* p) {
  return u16_at(p) | static_cast<uint32_t>(u16_at(p + 2)) << 16;
}
inline float f16_at(const uint8_t* p) {
  return half_to_float(u16_at(p));
}
inline float f32_at(const uint8_t* p) {
  return std::bit_cast<float>(u32_at(p));
}

// Nothing aliases: with plain pointers GCC 12 gives up on vectors, and q4_0 and q2_k decode 3 to 4 times
// slower.
using Block = const uint8_t* __restrict;
using Values = float* __restrict;

/// Calls decode(b, y) for each block b and its values y.
template <uint32_t elements, uint32_t bytes, typename DecodeOne>
void each_block(const uint8_t* blocks, float* out, uint64_t count, DecodeOne decode) {
  for (uint64_t i = 0; i < count; ++i) decode(blocks + i * bytes, out + i * elements);
}

/// The nibbles of `half` bytes: first all low ones, then all high ones. value(q, i) makes the element i.
template <size_t half, typename Value>
void each_nibble(Block bytes, Values y, Value value) {
  for (size_t i = 0; i < half; ++i) y[i] = value(bytes[i] & 15, i);
  for (size_t i = 0; i < half; ++i) y[half + i] = value(bytes[i] >> 4, half + i);
}

/// Nibbles that pick one of 16 levels.
template <size_t half>
void each_level(Block bytes, Values y, const int8_t (&levels)[16], float scale) {
  float scaled[16];
  for (size_t i = 0; i < 16; ++i) scaled[i] = scale * static_cast<float>(levels[i]);
  each_nibble<half>(bytes, y, [&](int q, size_t) { return scaled[q]; });
}

}  // namespace weft::quant
