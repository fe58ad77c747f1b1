#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "array/half.h"
#include "quant/quant.h"

/// What all block types have in common: value = scale * level + minimum. A code of a few bits picks the level
/// of an element; scale and minimum belong to a group of 16 or 32 elements, and are made of a factor of the
/// block and a part of the group. Decoding, repacking and matrix products are written once on top of this.
namespace weft::quant {

enum class Scales : uint8_t {
  half,     ///< factor: f16 scale, no parts
  bfloat,   ///< factor: bf16 scale, no parts
  halves,   ///< factor: f16 scale, f16 minimum above it, no parts
  sixes,    ///< factor: f16 d, f16 dmin; part of 32: scale, minimum << 8, of 6 bits: d scale, -dmin minimum
  nibbles,  ///< the same, part of 16: scale, minimum << 4, of 4 bits
  bytes,    ///< factor: f32 d; part of 16: a signed byte
  parts,    ///< no factor; part of 16: f16 scale
};
constexpr bool has_minimum(Scales scales) {
  return scales == Scales::halves || scales == Scales::sixes || scales == Scales::nibbles;
}
constexpr uint32_t group_elements(Scales scales) {
  return scales >= Scales::nibbles ? 16 : 32;
}

struct Coding {
  uint32_t bits = 0;  ///< of a code: 2 3 4 5 6 8; 0 = plain floats, which have no codes
  Scales scales = Scales::half;
  int offset = 0;                      ///< level = code - offset
  std::span<const int8_t> table = {};  ///< or table[code]

  /// A code of 8 bits is its level.
  int level(uint32_t code) const {
    if (bits == 8) return static_cast<int8_t>(code);
    return table.empty() ? static_cast<int>(code) - offset : table[code];
  }
};
const Coding& coding(Type type);

/// One block, taken apart.
struct Unpacked {
  uint8_t codes[256];
  uint32_t factor;
  uint16_t parts[16];
};
using Unpack = void(const uint8_t* block, Unpacked& to);
/// nullptr for plain floats.
Unpack* unpacker(Type type);

/// One block, from finite values.
using Pack = void(const float* x, uint8_t* block);
/// The same where the importance of each element matters; nullptr: nothing is known of it.
using WeightedPack = void(const float* x, const float* importance, uint8_t* block);

struct ScaleMin {
  float scale, min;
};
ScaleMin scale_min(Scales scales, uint32_t factor, uint32_t part);

// legacy.cpp
Unpack unpack_q4_0, unpack_q4_1, unpack_q5_0, unpack_q5_1, unpack_q8_0;
Pack pack_q4_0, pack_q4_1, pack_q5_0, pack_q5_1, pack_q8_0;
// k.cpp
Unpack unpack_q2_k, unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k, unpack_q8_k;
Pack pack_q2_k, pack_q3_k, pack_q4_k, pack_q5_k, pack_q6_k, pack_q8_k;
// iq.cpp
Unpack unpack_iq4_nl, unpack_iq4_xs, unpack_iq2_xxs, unpack_iq2_xs, unpack_iq2_s;
Unpack unpack_iq3_xxs, unpack_iq3_s, unpack_iq1_s, unpack_iq1_m;
Pack pack_iq4_nl, pack_iq4_xs;
// grid_pack.cpp
Pack pack_iq3_s;
WeightedPack pack_iq2_xxs, pack_iq2_xs, pack_iq2_s, pack_iq3_xxs;
// iq1_pack.cpp
WeightedPack pack_iq1_s, pack_iq1_m;
// other.cpp
Unpack unpack_tq1_0, unpack_tq2_0, unpack_mxfp4, unpack_nvfp4;
Pack pack_tq1_0, pack_tq2_0, pack_mxfp4, pack_nvfp4;

// ---- For the unpackers. b is the start of a block; multi-byte fields are little-endian and lie at any
// address.

inline uint16_t u16_at(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t u32_at(const uint8_t* p) {
  return u16_at(p) | static_cast<uint32_t>(u16_at(p + 2)) << 16;
}
/// The bits of an f16, widened to f32.
inline uint32_t f32_of_half_at(const uint8_t* p) {
  return std::bit_cast<uint32_t>(half_to_float(u16_at(p)));
}

/// The nibbles of `half` bytes: first all low ones, then all high ones.
inline void put_nibbles(const uint8_t* bytes, size_t half, uint8_t* codes) {
  for (size_t i = 0; i < half; ++i) codes[i] = bytes[i] & 15;
  for (size_t i = 0; i < half; ++i) codes[half + i] = bytes[i] >> 4;
}

// ---- For the packers.

inline void put_u16(uint8_t* p, uint16_t value) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}
inline void put_u32(uint8_t* p, uint32_t value) {
  put_u16(p, static_cast<uint16_t>(value));
  put_u16(p + 2, static_cast<uint16_t>(value >> 16));
}
/// Returns the scale as it is stored. Throws ErrorKind::invalid where f16 cannot hold it.
float put_half(uint8_t* p, float scale);

inline void take_nibbles(const uint8_t* codes, size_t half, uint8_t* bytes) {
  for (size_t i = 0; i < half; ++i) bytes[i] = static_cast<uint8_t>((codes[i] & 15) | codes[half + i] << 4);
}

}  // namespace weft::quant
