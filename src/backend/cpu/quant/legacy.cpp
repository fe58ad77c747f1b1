#include "backend/cpu/quant/blocks.h"

/// Blocks of 32 with one scale d (f16): q*_0 are symmetric, q*_1 add a minimum m (f16).
namespace weft::quant {

// d | 16 bytes of nibbles
void decode_q4_0(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 18>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    each_nibble<16>(b + 2, y, [=](int q, size_t) { return d * static_cast<float>(q - 8); });
  });
}

// d | m | 16 bytes of nibbles
void decode_q4_1(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 20>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b), m = f16_at(b + 2);
    each_nibble<16>(b + 4, y, [=](int q, size_t) { return d * static_cast<float>(q) + m; });
  });
}

// d | 32 fifth bits | 16 bytes of nibbles
void decode_q5_0(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 22>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    const uint32_t fifth = u32_at(b + 2);
    each_nibble<16>(b + 6, y, [=](int q, size_t i) {
      return d * static_cast<float>((q | static_cast<int>(fifth >> i & 1) << 4) - 16);
    });
  });
}

// d | m | 32 fifth bits | 16 bytes of nibbles
void decode_q5_1(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 24>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b), m = f16_at(b + 2);
    const uint32_t fifth = u32_at(b + 4);
    each_nibble<16>(b + 8, y, [=](int q, size_t i) {
      return d * static_cast<float>(q | static_cast<int>(fifth >> i & 1) << 4) + m;
    });
  });
}

// d | 32 signed bytes
void decode_q8_0(const uint8_t* blocks, float* out, uint64_t count) {
  each_block<32, 34>(blocks, out, count, [](Block b, Values y) {
    const float d = f16_at(b);
    for (size_t i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
  });
}

}  // namespace weft::quant
