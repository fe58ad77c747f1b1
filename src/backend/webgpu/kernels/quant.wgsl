// ggml's blocks, read where they lie: b is the byte where a block starts, i an element of it, g a group of 16 or 32
// elements. For each type code_, factor_ and part_ (where it has them), as src/quant/codes.h defines them; src/quant has
// the same in C++.
// Written around this by quant.cpp: byte(at), and grid(i), 16 bits of a point (src/quant/grids.h); codes(at), the byte there or,
// where code_ is asked for elements i to i + 3 at once, a byte for each, the four from there on; EACH, 1 in each of those bytes.

fn u16_at(at: u32) -> u32 { return byte(at) | (byte(at + 1u) << 8u); }
fn u32_at(at: u32) -> u32 { return u16_at(at) | (u16_at(at + 2u) << 16u); }
// An f16 as the bits of an f32, times a power of two.
fn wide_at(at: u32, times: f32) -> u32 { return bitcast<u32>(weft_from_f16(u16_at(at)) * times); }
// Element i of bytes that hold `half` low nibbles, then `half` high ones.
fn nibble(at: u32, i: u32, half: u32) -> u32 { return (codes(at + i % half) >> (i / half * 4u)) & (15u * EACH); }
fn bit(at: u32, i: u32) -> u32 { return (((byte(at + i / 8u) >> (i % 8u)) & 15u) * 0x00204081u) & EACH; }
fn odd(s: u32) -> u32 { return 2u * s + 1u; }

// ---- Scale and minimum of a group.
fn scale_half(factor: u32, part: u32) -> vec2<f32> { return vec2<f32>(weft_from_f16(factor), 0.0); }
fn scale_bfloat(factor: u32, part: u32) -> vec2<f32> { return vec2<f32>(bitcast<f32>(factor << 16u), 0.0); }
fn scale_halves(factor: u32, part: u32) -> vec2<f32> {
  return vec2<f32>(weft_from_f16(factor & 0xffffu), weft_from_f16(factor >> 16u));
}
fn scale_sixes(factor: u32, part: u32) -> vec2<f32> {
  return scale_halves(factor, 0u) * vec2<f32>(f32(part & 255u), -f32(part >> 8u));
}
fn scale_nibbles(factor: u32, part: u32) -> vec2<f32> {
  return scale_halves(factor, 0u) * vec2<f32>(f32(part & 15u), -f32(part >> 4u));
}
fn scale_bytes(factor: u32, part: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<f32>(factor) * f32(weft_wrap_i8(i32(part))), 0.0);
}
fn scale_parts(factor: u32, part: u32) -> vec2<f32> { return vec2<f32>(weft_from_f16(part), 0.0); }

// ---- Blocks of 32.
fn code_q4_0(b: u32, i: u32) -> u32 { return nibble(b + 2u, i, 16u); }
fn code_q4_1(b: u32, i: u32) -> u32 { return nibble(b + 4u, i, 16u); }
fn code_q5_0(b: u32, i: u32) -> u32 { return nibble(b + 6u, i, 16u) | (bit(b + 2u, i) << 4u); }
fn code_q5_1(b: u32, i: u32) -> u32 { return nibble(b + 8u, i, 16u) | (bit(b + 4u, i) << 4u); }
fn code_q8_0(b: u32, i: u32) -> u32 { return codes(b + 2u + i); }
fn code_iq4_nl(b: u32, i: u32) -> u32 { return nibble(b + 2u, i, 16u); }
fn code_mxfp4(b: u32, i: u32) -> u32 { return nibble(b + 1u, i, 16u); }
fn factor_q4_0(b: u32) -> u32 { return u16_at(b); }
fn factor_q4_1(b: u32) -> u32 { return u32_at(b); }
fn factor_q5_0(b: u32) -> u32 { return u16_at(b); }
fn factor_q5_1(b: u32) -> u32 { return u32_at(b); }
fn factor_q8_0(b: u32) -> u32 { return u16_at(b); }
fn factor_iq4_nl(b: u32) -> u32 { return u16_at(b); }
fn factor_mxfp4(b: u32) -> u32 {
  let e = byte(b);
  if (e < 2u) { return 0x20u << e; }
  return (e - 1u) << 7u;
}

// ---- Blocks of 64.
fn code_nvfp4(b: u32, i: u32) -> u32 { return nibble(b + 4u + i / 16u * 8u, i % 16u, 8u); }
fn part_nvfp4(b: u32, g: u32) -> u32 {
  let x = byte(b + g);
  if (x == 0x7fu) { return 0u; }
  let exponent = (x >> 3u) & 15u;
  if (exponent == 0u) { return weft_to_f16(f32(x & 7u) * 0.0009765625); }
  return ((exponent + 7u) << 10u) | ((x & 7u) << 7u);
}

// ---- Blocks of 256 with k-scales.
fn two_bits(at: u32, i: u32) -> u32 { return (codes(at + i / 128u * 32u + i % 32u) >> (i / 32u % 4u * 2u)) & (3u * EACH); }
fn sixes(at: u32, g: u32) -> u32 {
  let a = byte(at + g % 4u);
  let c = byte(at + 4u + g % 4u);
  if (g < 4u) { return (a & 63u) | ((c & 63u) << 8u); }
  let low = byte(at + 4u + g);
  return (low & 15u) | ((a >> 6u) << 4u) | (((low >> 4u) | ((c >> 6u) << 4u)) << 8u);
}
fn code_q2_k(b: u32, i: u32) -> u32 { return two_bits(b + 16u, i); }
fn code_q3_k(b: u32, i: u32) -> u32 {
  return two_bits(b + 32u, i) | (((codes(b + i % 32u) >> (i / 32u)) & EACH) << 2u);
}
fn code_q4_k(b: u32, i: u32) -> u32 { return nibble(b + 16u + i / 64u * 32u, i % 64u, 32u); }
fn code_q5_k(b: u32, i: u32) -> u32 {
  return nibble(b + 48u + i / 64u * 32u, i % 64u, 32u) | (((codes(b + 16u + i % 32u) >> (i / 32u)) & EACH) << 4u);
}
fn code_q6_k(b: u32, i: u32) -> u32 { return nibble(b + i / 128u * 64u, i % 128u, 64u) | (two_bits(b + 128u, i) << 4u); }
fn code_q8_k(b: u32, i: u32) -> u32 { return codes(b + 4u + i); }
fn factor_q2_k(b: u32) -> u32 { return u32_at(b + 80u); }
fn factor_q3_k(b: u32) -> u32 { return wide_at(b + 108u, 1.0); }
fn factor_q4_k(b: u32) -> u32 { return u32_at(b); }
fn factor_q5_k(b: u32) -> u32 { return u32_at(b); }
fn factor_q6_k(b: u32) -> u32 { return wide_at(b + 208u, 1.0); }
fn factor_q8_k(b: u32) -> u32 { return u32_at(b); }
fn part_q2_k(b: u32, g: u32) -> u32 { return byte(b + g); }
fn part_q3_k(b: u32, g: u32) -> u32 {
  let low = (byte(b + 96u + g % 8u) >> (g / 8u * 4u)) & 15u;
  return ((low | (((byte(b + 104u + g % 4u) >> (g / 4u * 2u)) & 3u) << 4u)) - 32u) & 255u;
}
fn part_q4_k(b: u32, g: u32) -> u32 { return sixes(b + 4u, g); }
fn part_q5_k(b: u32, g: u32) -> u32 { return sixes(b + 4u, g); }
fn part_q6_k(b: u32, g: u32) -> u32 { return byte(b + 192u + g); }
fn part_q8_k(b: u32, g: u32) -> u32 { return 1u; }

// ---- Ternary: 5 digits in a byte, as a fraction in base 3.
fn code_tq1_0(b: u32, i: u32) -> u32 {
  var at = i % 32u;  // 5 digits of 32 bytes, 5 of 16, 4 of 4
  var digit = i / 32u;
  if (i >= 240u) {
    at = 48u + i % 4u;
    digit = (i - 240u) / 4u;
  } else if (i >= 160u) {
    at = 32u + i % 16u;
    digit = (i - 160u) / 16u;
  }
  var rest = byte(b + at);
  for (var n = 0u; n < digit; n++) { rest = (rest * 3u) & 255u; }
  return (rest * 3u) >> 8u;
}
fn code_tq2_0(b: u32, i: u32) -> u32 { return two_bits(b, i); }
fn factor_tq1_0(b: u32) -> u32 { return wide_at(b + 52u, 1.0); }
fn factor_tq2_0(b: u32) -> u32 { return wide_at(b + 64u, 1.0); }
fn part_tq1_0(b: u32, g: u32) -> u32 { return 1u; }
fn part_tq2_0(b: u32, g: u32) -> u32 { return 1u; }

// ---- Grids: an index picks a point of 8 elements of 2 bits, or of 4 elements of 4 bits.
fn seven_signs(seven: u32, i: u32) -> u32 {
  return select((seven >> i) & 1u, countOneBits(seven) & 1u, i == 7u);
}
fn point8(index: u32, i: u32, sign: u32) -> u32 { return ((grid(index) >> (2u * i)) & 3u) | (sign << 2u); }
fn point4(index: u32, i: u32, sign: u32) -> u32 { return ((grid(index) >> (4u * (i % 4u))) & 15u) | (sign << 3u); }

fn code_iq4_xs(b: u32, i: u32) -> u32 { return nibble(b + 8u + i / 32u * 16u, i % 32u, 16u); }
fn code_iq2_xxs(b: u32, i: u32) -> u32 {
  let k = i / 8u;
  let at = b + 2u + k / 4u * 8u;
  return point8(byte(at + k % 4u), i % 8u, seven_signs((u32_at(at + 4u) >> (k % 4u * 7u)) & 127u, i % 8u));
}
fn code_iq2_xs(b: u32, i: u32) -> u32 {
  let q = u16_at(b + 2u + i / 8u * 2u);
  return point8(q & 511u, i % 8u, seven_signs(q >> 9u, i % 8u));
}
fn code_iq2_s(b: u32, i: u32) -> u32 {
  let k = i / 8u;
  let high = (byte(b + 66u + k / 4u) >> (k % 4u * 2u)) & 3u;
  return point8(byte(b + 2u + k) | (high << 8u), i % 8u, bit(b + 34u, i));
}
fn code_iq3_xxs(b: u32, i: u32) -> u32 {
  let k = i / 8u;
  let signs = (u32_at(b + 66u + k / 4u * 4u) >> (k % 4u * 7u)) & 127u;
  return point4(byte(b + 2u + i / 4u), i, seven_signs(signs, i % 8u));
}
fn code_iq3_s(b: u32, i: u32) -> u32 {
  return point4(byte(b + 2u + i / 4u) | (bit(b + 66u, i / 4u) << 8u), i, bit(b + 74u, i));
}
fn code_iq1_s(b: u32, i: u32) -> u32 {
  let k = i / 8u;
  let rest = u16_at(b + 34u + k / 4u * 2u);
  return point8(byte(b + 2u + k) | (((rest >> (k % 4u * 3u)) & 7u) << 8u), i % 8u, rest >> 15u);
}
fn code_iq1_m(b: u32, i: u32) -> u32 {
  let k = i / 8u;
  let rest = byte(b + 32u + k / 2u) >> (k % 2u * 4u);
  return point8(byte(b + k) | ((rest & 7u) << 8u), i % 8u, (rest >> 3u) & 1u);
}
fn factor_iq4_xs(b: u32) -> u32 { return wide_at(b, 1.0); }
fn factor_iq2_xxs(b: u32) -> u32 { return wide_at(b, 0.125); }
fn factor_iq2_xs(b: u32) -> u32 { return wide_at(b, 0.125); }
fn factor_iq2_s(b: u32) -> u32 { return wide_at(b, 0.125); }
fn factor_iq3_xxs(b: u32) -> u32 { return wide_at(b, 0.25); }
fn factor_iq3_s(b: u32) -> u32 { return wide_at(b, 1.0); }
fn factor_iq1_s(b: u32) -> u32 { return wide_at(b, 0.125); }
fn factor_iq1_m(b: u32) -> u32 {
  var d = 0u;
  for (var n = 0u; n < 4u; n++) { d |= (byte(b + 49u + 2u * n) >> 4u) << (4u * n); }
  return bitcast<u32>(weft_from_f16(d) * 0.125);
}
fn part_iq4_xs(b: u32, g: u32) -> u32 {
  let s = g / 2u;
  let low = (byte(b + 4u + s / 2u) >> (s % 2u * 4u)) & 15u;
  return ((low | (((u16_at(b + 2u) >> (2u * s)) & 3u) << 4u)) - 32u) & 255u;
}
fn part_iq2_xxs(b: u32, g: u32) -> u32 { return odd(byte(b + 9u + g / 2u * 8u) >> 4u); }
fn part_iq2_xs(b: u32, g: u32) -> u32 { return odd((byte(b + 66u + g / 2u) >> (g % 2u * 4u)) & 15u); }
fn part_iq2_s(b: u32, g: u32) -> u32 { return odd((byte(b + 74u + g / 2u) >> (g % 2u * 4u)) & 15u); }
fn part_iq3_xxs(b: u32, g: u32) -> u32 { return odd(byte(b + 69u + g / 2u * 4u) >> 4u); }
fn part_iq3_s(b: u32, g: u32) -> u32 { return odd((byte(b + 106u + g / 4u) >> (g / 2u % 2u * 4u)) & 15u); }
fn part_iq1_s(b: u32, g: u32) -> u32 { return odd((byte(b + 35u + g / 2u * 2u) >> 4u) & 7u); }
fn part_iq1_m(b: u32, g: u32) -> u32 { return odd((u16_at(b + 48u + g / 4u * 2u) >> (g % 4u * 3u)) & 7u); }
