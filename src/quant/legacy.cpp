#include "quant/codes.h"

/// Blocks of 32 with one scale d (f16): q*_0 are symmetric, q*_1 add a minimum m (f16).
namespace weft::quant {
namespace {

void put_fifth_bits(uint32_t bits, uint8_t* codes) {
  for (size_t i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

}  // namespace

// d | 16 bytes of nibbles
void unpack_q4_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  put_nibbles(b + 2, 16, to.codes);
}

// d | m | 16 bytes of nibbles
void unpack_q4_1(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_nibbles(b + 4, 16, to.codes);
}

// d | 32 fifth bits | 16 bytes of nibbles
void unpack_q5_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  put_nibbles(b + 6, 16, to.codes);
  put_fifth_bits(u32_at(b + 2), to.codes);
}

// d | m | 32 fifth bits | 16 bytes of nibbles
void unpack_q5_1(const uint8_t* b, Unpacked& to) {
  to.factor = u32_at(b);
  put_nibbles(b + 8, 16, to.codes);
  put_fifth_bits(u32_at(b + 4), to.codes);
}

// d | 32 signed bytes
void unpack_q8_0(const uint8_t* b, Unpacked& to) {
  to.factor = u16_at(b);
  for (size_t i = 0; i < 32; ++i) to.codes[i] = b[2 + i];
}

}  // namespace weft::quant
