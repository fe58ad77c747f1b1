#include <algorithm>
#include <cmath>

#include "quant/codes.h"
#include "quant/search.h"

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

void take_sixes(const uint16_t* parts, uint8_t* s) {
  for (size_t g = 0; g < 4; ++g) {
    const int low = parts[g], high = parts[4 + g];
    s[g] = static_cast<uint8_t>((low & 63) | (high & 0x30) << 2);
    s[4 + g] = static_cast<uint8_t>(low >> 8 | (high >> 8 & 0x30) << 2);
    s[8 + g] = static_cast<uint8_t>((high & 15) | (high >> 8 & 15) << 4);
  }
}

void take_q3_scales(const int* scales, uint8_t* p) {
  std::fill_n(p, 12, uint8_t{0});
  for (size_t s = 0; s < 16; ++s) {
    const int scale = scales[s] + 32;
    p[s % 8] |= static_cast<uint8_t>((scale & 15) << 4 * (s / 8));
    p[8 + s % 4] |= static_cast<uint8_t>(scale >> 4 << 2 * (s / 4));
  }
}

/// 2 bits of 256 codes into 64 bytes.
void take_pairs(const uint8_t* codes, uint8_t* bytes) {
  for (size_t half = 0; half < 2; ++half)
    for (size_t l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 128 * half + l;
      bytes[32 * half + l] =
          static_cast<uint8_t>((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

/// Bit `bit` of 256 codes into 32 bytes: that of group g is bit g.
void take_bits(const uint8_t* codes, int bit, uint8_t* bytes) {
  for (size_t l = 0; l < 32; ++l) {
    int byte = 0;
    for (size_t g = 0; g < 8; ++g) byte |= (codes[32 * g + l] >> bit & 1) << g;
    bytes[l] = static_cast<uint8_t>(byte);
  }
}

// Scales are rounded themselves, so codes are chosen once more, for the scale that will be read. A group
// whose scale became zero keeps the codes it has.

void choose_codes(const float* x, size_t count, float scale, int most, uint8_t* codes) {
  if (scale == 0) return;
  const float top = static_cast<float>(most);
  for (size_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>(nearest(x[i] / scale, -top, top - 1) + top);
}
void choose_codes(const float* x, size_t count, Affine fit, int most, uint8_t* codes) {
  if (fit.scale == 0) return;
  for (size_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>(nearest((x[i] + fit.min) / fit.scale, 0, static_cast<float>(most)));
}

/// The largest scale and the largest minimum of the groups.
Affine largest(std::span<const Affine> groups) {
  Affine result{};
  for (const Affine& group : groups) {
    result.scale = std::max(result.scale, group.scale);
    result.min = std::max(result.min, group.min);
  }
  return result;
}

/// d, dmin and the parts of 8 groups of q4_k and q5_k, with codes 0 to `most`.
void pack_sixes(const float* x, int most, const Tries& tries, uint8_t* b, uint8_t* codes) {
  Affine groups[8];
  for (size_t g = 0; g < 8; ++g) {
    const std::span<const float> group(x + 32 * g, 32);
    float squares = 0, weights[32];
    for (const float value : group) squares += value * value;
    const float average = std::sqrt(squares / 32);
    for (size_t l = 0; l < 32; ++l) weights[l] = average + std::abs(group[l]);
    groups[g] = search_affine(group, weights, most, tries, codes + 32 * g);
  }
  const Affine top = largest(groups);
  const float inverse_scale = top.scale > 0 ? 63 / top.scale : 0,
              inverse_min = top.min > 0 ? 63 / top.min : 0;
  const float d = put_half(b, top.scale / 63), dmin = put_half(b + 2, top.min / 63);
  uint16_t parts[8];
  for (size_t g = 0; g < 8; ++g) {
    const float scale = nearest(inverse_scale * groups[g].scale, 0, 63);
    const float min = nearest(inverse_min * groups[g].min, 0, 63);
    parts[g] = static_cast<uint16_t>(static_cast<int>(scale) | static_cast<int>(min) << 8);
    choose_codes(x + 32 * g, 32, {.scale = d * scale, .min = dmin * min}, most, codes + 32 * g);
  }
  take_sixes(parts, b + 4);
}

}  // namespace

// 16 bytes: scale and minimum (nibbles) of 16 elements | 64 bytes of 2 bits | d | dmin
void unpack_q2_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b + 80);
  for (size_t s = 0; s < 16; ++s) to.parts[s] = b[s];
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] = b[16 + g / 4 * 32 + l] >> g % 4 * 2 & 3;
}
void pack_q2_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  Affine groups[16];
  for (size_t s = 0; s < 16; ++s) {
    const std::span<const float> group(x + 16 * s, 16);
    float weights[16];
    for (size_t i = 0; i < 16; ++i) weights[i] = std::abs(group[i]);
    groups[s] = search_affine(group, weights, 3, {.first = -0.5f, .step = 0.1f, .last = 15, .squares = false},
                              codes + 16 * s);
  }
  const Affine top = largest(groups);
  const float inverse_scale = top.scale > 0 ? 15 / top.scale : 0,
              inverse_min = top.min > 0 ? 15 / top.min : 0;
  const float d = put_half(b + 80, top.scale / 15), dmin = put_half(b + 82, top.min / 15);
  for (size_t s = 0; s < 16; ++s) {
    const float scale = nearest(inverse_scale * groups[s].scale, 0, 15);
    const float min = nearest(inverse_min * groups[s].min, 0, 15);
    b[s] = static_cast<uint8_t>(static_cast<int>(scale) | static_cast<int>(min) << 4);
    choose_codes(x + 16 * s, 16, {.scale = d * scale, .min = dmin * min}, 3, codes + 16 * s);
  }
  take_pairs(codes, b + 16);
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
void pack_q3_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  float found[16];
  for (size_t s = 0; s < 16; ++s) found[s] = refine_scale({x + 16 * s, 16}, 4, codes + 16 * s);
  const float top = peak(found), inverse = top != 0 ? -32 / top : 0;
  const float d = put_half(b + 108, top != 0 ? 1 / inverse : 0);
  int scales[16];
  for (size_t s = 0; s < 16; ++s) {
    scales[s] = top != 0 ? static_cast<int>(nearest(inverse * found[s], -32, 31)) : -32;
    choose_codes(x + 16 * s, 16, d * static_cast<float>(scales[s]), 4, codes + 16 * s);
  }
  take_bits(codes, 2, b);
  take_pairs(codes, b + 32);
  take_q3_scales(scales, b + 96);
}

// d | dmin | 12 bytes of scales and minima, one for each group | 128 bytes of nibbles
void unpack_q4_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_sixes(b + 4, to.parts);
  for (size_t pair = 0; pair < 4; ++pair) put_nibbles(b + 16 + 32 * pair, 32, to.codes + 64 * pair);
}
void pack_q4_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  pack_sixes(x, 15, {.first = -1, .step = 0.1f, .last = 20, .squares = true}, b, codes);
  for (size_t pair = 0; pair < 4; ++pair) take_nibbles(codes + 64 * pair, 32, b + 16 + 32 * pair);
}

// d | dmin | 12 bytes of scales and minima | 32 bytes of fifth bits | 128 bytes of nibbles
void unpack_q5_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_sixes(b + 4, to.parts);
  for (size_t pair = 0; pair < 4; ++pair) put_nibbles(b + 48 + 32 * pair, 32, to.codes + 64 * pair);
  for (size_t g = 0; g < 8; ++g)
    for (size_t l = 0; l < 32; ++l) to.codes[32 * g + l] |= static_cast<uint8_t>((b[16 + l] >> g & 1) << 4);
}
void pack_q5_k(const float* x, uint8_t* b) {
  uint8_t codes[256];
  pack_sixes(x, 31, {.first = -0.5f, .step = 0.1f, .last = 15, .squares = true}, b, codes);
  take_bits(codes, 4, b + 16);
  for (size_t pair = 0; pair < 4; ++pair) take_nibbles(codes + 64 * pair, 32, b + 48 + 32 * pair);
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
void pack_q6_k(const float* x, uint8_t* b) {
  std::fill_n(b, 210, uint8_t{0});
  uint8_t codes[256];
  float found[16];
  for (size_t s = 0; s < 16; ++s) found[s] = search_scale({x + 16 * s, 16}, 32, codes + 16 * s);
  const float top = peak(found);
  if (std::abs(top) < kSmallestPeak) return;
  const float inverse = -128 / top, d = put_half(b + 208, 1 / inverse);
  for (size_t s = 0; s < 16; ++s) {
    const float scale = nearest(inverse * found[s], -128, 127);
    b[192 + s] = static_cast<uint8_t>(static_cast<int>(scale));
    choose_codes(x + 16 * s, 16, d * scale, 32, codes + 16 * s);
  }
  for (size_t half = 0; half < 2; ++half)
    for (size_t l = 0; l < 32; ++l) {
      const uint8_t* c = codes + 128 * half + l;
      b[64 * half + l] = static_cast<uint8_t>((c[0] & 15) | c[64] << 4);
      b[64 * half + 32 + l] = static_cast<uint8_t>((c[32] & 15) | c[96] << 4);
      b[128 + 32 * half + l] =
          static_cast<uint8_t>(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
}

// d (f32) | 256 signed bytes | 16 sums of 16 elements, which are for dot products
void unpack_q8_k(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  for (uint16_t& part : to.parts) part = 1;
  for (size_t i = 0; i < 256; ++i) to.codes[i] = b[4 + i];
}
void pack_q8_k(const float* x, uint8_t* b) {
  std::fill_n(b, 292, uint8_t{0});
  const float top = peak({x, 256});
  if (top == 0) return;
  const float inverse = -127 / top;
  put_u32(b, std::bit_cast<uint32_t>(1 / inverse));
  for (size_t s = 0; s < 16; ++s) {
    int sum = 0;
    for (size_t i = 16 * s; i < 16 * s + 16; ++i) {
      const int level = static_cast<int>(nearest(inverse * x[i], -127, 127));
      b[4 + i] = static_cast<uint8_t>(level);
      sum += level;
    }
    put_u16(b + 260 + 2 * s, static_cast<uint16_t>(sum));
  }
}

}  // namespace weft::quant
