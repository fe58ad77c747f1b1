// Packed weights (src/quant/packing.h), 32 elements of a row at a time. Written around this by qmatmul.cpp: packed(i)
// and packed4(i), a word and four words of the weights; BESIDE_ROWS, how many rows lie side by side; blocks(), the units of 32
// elements in a row; scales_start() and scales_units(); halves(word), two f16; lut(byte), the levels of two codes. What is
// loaded is apart from what it means, so that kernels can load ahead.

// 32 bytes, one for each element: 0 to 15 and 16 to 31.
struct Bytes {
  low: vec4<u32>,
  high: vec4<u32>,
}

// Signed bytes; codes are below 64.
fn floats_of(bytes: u32) -> vec4<f32> { return weft_signed_bytes(bytes); }

// Which unit of its section a unit of a row is; a row has `units` of them.
fn unit_at(row: u32, unit: u32, units: u32) -> u32 {
  return (row / BESIDE_ROWS * units + unit) * BESIDE_ROWS + row % BESIDE_ROWS;
}

// ---- Codes: `start` is the first word of a section.
fn load_8(start: u32, unit: u32) -> Bytes {
  let at = start / 4u + unit * 2u;
  return Bytes(packed4(at), packed4(at + 1u));
}
fn load_4(start: u32, unit: u32) -> vec4<u32> { return packed4(start / 4u + unit); }
fn load_2(start: u32, unit: u32) -> vec2<u32> {
  return vec2<u32>(packed(start + unit * 2u), packed(start + unit * 2u + 1u));
}
fn load_1(start: u32, unit: u32) -> u32 { return packed(start + unit); }

// Levels of the codes in two words, looked up in pairs.
fn two_from_table(a: u32, b: u32) -> vec2<u32> {
  let pairs = a | (b << 4u);
  let first = lut(pairs & 255u) | (lut((pairs >> 8u) & 255u) << 8u);
  let last = lut((pairs >> 16u) & 255u) | (lut(pairs >> 24u) << 8u);
  return vec2<u32>((first & 0xffffu) | (last << 16u), (first >> 16u) | (last & 0xffff0000u));
}
fn from_table(codes: Bytes) -> Bytes {
  return Bytes(vec4<u32>(two_from_table(codes.low.x, codes.low.y), two_from_table(codes.low.z, codes.low.w)),
               vec4<u32>(two_from_table(codes.high.x, codes.high.y), two_from_table(codes.high.z, codes.high.w)));
}

// ---- Scales: words of a unit, and of those scale and minimum of elements 0 to 15, then of 16 to 31.
fn signed_byte(word: u32) -> f32 { return f32(weft_wrap_i8(i32(word))); }
fn load_half(row: u32, block: u32) -> u32 {
  return packed(scales_start() + unit_at(row, block / 2u, scales_units()));
}
fn load_bfloat(row: u32, block: u32) -> u32 { return load_half(row, block); }
fn load_halves(row: u32, block: u32) -> u32 { return packed(scales_start() + unit_at(row, block, scales_units())); }
fn load_parts(row: u32, block: u32) -> u32 { return load_halves(row, block); }
fn load_sixes(row: u32, block: u32) -> vec4<u32> {
  return packed4(scales_start() / 4u + unit_at(row, block / 8u, scales_units()));
}
fn load_nibbles(row: u32, block: u32) -> vec2<u32> {
  let at = scales_start() + unit_at(row, block / 8u, scales_units()) * 5u;
  return vec2<u32>(packed(at), packed(at + 1u + block % 8u / 2u));
}
fn load_bytes(row: u32, block: u32) -> vec2<u32> { return load_nibbles(row, block); }

fn scales_half(word: u32, block: u32) -> vec4<f32> {
  return vec2<f32>(halves((word >> (block % 2u * 16u)) & 0xffffu).x, 0.0).xyxy;
}
fn scales_bfloat(word: u32, block: u32) -> vec4<f32> {
  return vec2<f32>(bitcast<f32>((word >> (block % 2u * 16u)) << 16u), 0.0).xyxy;
}
fn scales_halves(word: u32, block: u32) -> vec4<f32> { return halves(word).xyxy; }
fn scales_parts(word: u32, block: u32) -> vec4<f32> {
  let both = halves(word);
  return vec4<f32>(both.x, 0.0, both.y, 0.0);
}
// Scale and minimum of a block are in the same byte of two words, of which a mask makes four at once.
fn scales_sixes(unit: vec4<u32>, block: u32) -> vec4<f32> {
  let odd_lows = ((unit.y >> 6u) & 0x03030303u) | ((unit.z >> 4u) & 0x0c0c0c0cu) | ((unit.w >> 2u) & 0x30303030u);
  let four = select(unit.yz & vec2<u32>(0x3f3f3f3fu), vec2<u32>(unit.w & 0x3f3f3f3fu, odd_lows), block % 2u == 1u);
  let parts = vec2<f32>((four >> vec2<u32>(block % 8u / 2u * 8u)) & vec2<u32>(255u));
  return (halves(unit.x) * vec2<f32>(parts.x, -parts.y)).xyxy;
}
fn scales_nibbles(words: vec2<u32>, block: u32) -> vec4<f32> {
  let nibbles = (vec4<u32>(words.y >> (block % 2u * 16u)) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
  return halves(words.x).xyxy * vec4<f32>(nibbles) * vec4<f32>(1.0, -1.0, 1.0, -1.0);
}
fn scales_bytes(words: vec2<u32>, block: u32) -> vec4<f32> {
  let parts = words.y >> (block % 2u * 16u);
  return bitcast<f32>(words.x) * vec4<f32>(signed_byte(parts), 0.0, signed_byte(parts >> 8u), 0.0);
}
