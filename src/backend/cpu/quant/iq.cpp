#include <bit>

#include "backend/cpu/quant/blocks.h"
#include "backend/cpu/quant/grids.h"

/// Non-linear types. iq4: a nibble picks one of 16 levels. iq1 to iq3, in blocks of 256: an index picks a
/// point of a grid, that is 8 (iq1, iq2) or 4 (iq3) elements at once; k numbers the groups of 8 elements.
namespace weft::quant {
namespace {

constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// 7 stored sign bits; the eighth makes their number even.
int even_signs(uint32_t seven) {
  return static_cast<int>(seven | (std::popcount(seven) & 1u) << 7);
}

/// `n` elements of one point; a set bit in `signs` is a minus.
template <size_t n>
void put_point(const std::array<int8_t, n>& point, int signs, float scale, float* y) {
  for (size_t i = 0; i < n; ++i) y[i] = static_cast<float>(signs >> i & 1 ? -point[i] : point[i]) * scale;
}

/// iq1: points of -1, 0, 1, all moved up or down by an eighth.
void put_moved_point(int index, bool down, float scale, float* y) {
  const std::array<int8_t, 8>& point = kGridIq1[index];
  const float move = down ? -0.125f : 0.125f;
  for (size_t i = 0; i < 8; ++i) y[i] = scale * (static_cast<float>(point[i]) + move);
}

}  // namespace

// d (f16) | 16 bytes of nibbles
void decode_iq4_nl(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 18>(blocks, out, count,
                     [](Block b, Values y) { each_level<16>(b + 2, y, kLevels, f16_at(b)); });
}

// d (f16) | 8 x 2 upper bits of scales | 8 nibbles of scales, one for 32 elements | 128 bytes of nibbles
void decode_iq4_xs(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 136>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    const int high = u16_at(b + 2);
    for (size_t g = 0; g < 8; ++g) {
      const int low = b[4 + g / 2] >> g % 2 * 4 & 15;
      const float scale = d * static_cast<float>((low | (high >> 2 * g & 3) << 4) - 32);
      each_level<16>(b + 8 + 16 * g, y + 32 * g, kLevels, scale);
    }
  });
}

// d (f16) | for each 32 elements: 4 indices of 8 bits | 4 x 7 signs and a scale of 4 bits
void decode_iq2_xxs(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 66>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t g = 0; g < 8; ++g) {
      const uint8_t* index = b + 2 + 8 * g;
      const uint32_t rest = u32_at(index + 4);
      const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
      for (size_t k = 0; k < 4; ++k)
        put_point(kGridIq2Xxs[index[k]], even_signs(rest >> 7 * k & 127), scale, y + 32 * g + 8 * k);
    }
  });
}

// d (f16) | 32 x (9 bits of index, 7 signs) | 16 nibbles of scales, one for 16 elements
void decode_iq2_xs(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 74>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t k = 0; k < 32; ++k) {
      const uint32_t q = u16_at(b + 2 + 2 * k);
      const float scale = d * (0.5f + static_cast<float>(b[66 + k / 4] >> k / 2 % 2 * 4 & 15)) * 0.25f;
      put_point(kGridIq2Xs[q & 511], even_signs(q >> 9), scale, y + 8 * k);
    }
  });
}

// d (f16) | 32 indices | 32 bytes of signs | 32 x 2 upper bits of indices | 16 nibbles of scales
void decode_iq2_s(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 82>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t k = 0; k < 32; ++k) {
      const int index = b[2 + k] | (b[66 + k / 4] >> k % 4 * 2 & 3) << 8;
      const float scale = d * (0.5f + static_cast<float>(b[74 + k / 4] >> k / 2 % 2 * 4 & 15)) * 0.25f;
      put_point(kGridIq2S[index], b[34 + k], scale, y + 8 * k);
    }
  });
}

// d (f16) | 64 indices | for each 32 elements: 4 x 7 signs and a scale of 4 bits
void decode_iq3_xxs(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 98>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t k = 0; k < 32; ++k) {
      const uint8_t* index = b + 2 + 2 * k;
      const uint32_t rest = u32_at(b + 66 + k / 4 * 4);
      const float scale = d * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
      const int signs = even_signs(rest >> k % 4 * 7 & 127);
      put_point(kGridIq3Xxs[index[0]], signs, scale, y + 8 * k);
      put_point(kGridIq3Xxs[index[1]], signs >> 4, scale, y + 8 * k + 4);
    }
  });
}

// d (f16) | 64 indices | 64 ninth bits of indices | 32 bytes of signs | 8 nibbles of scales
void decode_iq3_s(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 110>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t k = 0; k < 32; ++k) {
      const int ninth = b[66 + k / 4] >> k % 4 * 2, signs = b[74 + k];
      const int first = b[2 + 2 * k] | (ninth & 1) << 8, second = b[3 + 2 * k] | (ninth & 2) << 7;
      const float scale = d * static_cast<float>(1 + 2 * (b[106 + k / 8] >> k / 4 % 2 * 4 & 15));
      put_point(kGridIq3S[first], signs, scale, y + 8 * k);
      put_point(kGridIq3S[second], signs >> 4, scale, y + 8 * k + 4);
    }
  });
}

// d (f16) | 32 indices | for each 32 elements: 4 x 3 upper bits of indices, a scale of 3 bits, down
void decode_iq1_s(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 50>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t k = 0; k < 32; ++k) {
      const int rest = u16_at(b + 34 + k / 4 * 2);
      const float scale = d * static_cast<float>(2 * (rest >> 12 & 7) + 1);
      put_moved_point(b[2 + k] | (rest >> k % 4 * 3 & 7) << 8, rest >> 15, scale, y + 8 * k);
    }
  });
}

// 32 indices | 32 nibbles: 3 upper bits of the index, down | 4 x (4 scales of 3 bits, a nibble of d (f16))
void decode_iq1_m(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<256, 56>(blocks, out, count, [](Block b, Values y) {
    int d_bits = 0;
    for (size_t i = 0; i < 4; ++i) d_bits |= u16_at(b + 48 + 2 * i) >> 12 << 4 * i;
    const float d = half_to_float(static_cast<uint16_t>(d_bits));
    for (size_t k = 0; k < 32; ++k) {
      const int rest = b[32 + k / 2] >> k % 2 * 4;
      const int scale = u16_at(b + 48 + k / 8 * 2) >> k / 2 % 4 * 3 & 7;  // one for 16 elements
      put_moved_point(b[k] | (rest & 7) << 8, rest & 8, d * static_cast<float>(2 * scale + 1), y + 8 * k);
    }
  });
}

}  // namespace weft::quant
