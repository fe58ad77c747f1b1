// Blocks of 32 elements, byte by byte: the scale in two bytes, then codes, a byte each (q8_0) or two in a byte (q4_0), as
// quant/legacy.cpp makes them. Each invocation looks for the scale by itself: rows of a cache are few.
// Written around this by quant.cpp: x; BYTES of a block, NIBBLES.
const ELEMENTS = 32u;

// From -127 to 127, half away from 0.
fn byte_code(v: f32) -> u32 { return u32(i32(weft_copysign(floor(abs(v) + 0.5), v))) & 0xffu; }
fn nibble(v: f32) -> u32 { return min(u32(max(v + 8.5, 0.0)), 15u); }

fn element(i: u32) -> Result {
  let first = i / BYTES * ELEMENTS;
  let at = i % BYTES;
  var peak = 0.0;
  for (var e = 0u; e < ELEMENTS; e++) {
    let v = x(first + e);
    if (abs(v) > abs(peak)) { peak = v; }
  }
  let scale = select(abs(peak) / 127.0, peak / -8.0, NIBBLES);
  if (at < 2u) { return Result((weft_to_f16(scale) >> (8u * at)) & 0xffu); }
  let inverse = select(1.0 / scale, 0.0, scale == 0.0);
  let own = x(first + at - 2u) * inverse;
  if (!NIBBLES) { return Result(byte_code(own)); }
  return Result(nibble(own) | (nibble(x(first + at + 14u) * inverse) << 4u));
}
