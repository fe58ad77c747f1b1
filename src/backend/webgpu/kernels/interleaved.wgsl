// Packed weights whose rows are interleaved (src/quant/packing.h), four of them at a time: a vector has the same word of each.
// Written around this by interleaved.cpp: packed4(i), four words; blocks(), the units of 32 elements in a row; the starts of
// sections; table(i), four levels; TOGETHER, how many rows are; FIRST and LAST, the words of a unit of codes in either section;
// code_bytes(words), a byte for each code; SCALES, the words of a unit of scales; offset(), halves(word).

// Scales and minima of elements 0 to 15, then of 16 to 31.
struct Scales {
  low: vec4<f32>,
  low_minimum: vec4<f32>,
  high: vec4<f32>,
  high_minimum: vec4<f32>,
}

// Where the sections have the words of four rows, in vectors; their next word is TOGETHER / 4 vectors on. Kernels find it once:
// compilers of software adapters leave in a loop what does not change in it.
struct Rows {
  first: u32,
  last: u32,
  scales: u32,
}
fn rows_at(start: u32, words: u32, row: u32) -> u32 {
  return (start + row / TOGETHER * TOGETHER * words + row % TOGETHER) / 4u;
}
fn rows_of(row: u32) -> Rows {
  return Rows(rows_at(first_codes(), blocks() * FIRST, row), rows_at(last_codes(), blocks() * LAST, row),
              rows_at(scales_start(), scales_units() * SCALES, row));
}

// ---- Codes: the words of a unit.
fn load_codes(rows: Rows, block: u32) -> array<vec4<u32>, FIRST + LAST> {
  var words: array<vec4<u32>, FIRST + LAST>;
  #for w FIRST
  words[$w] = packed4(rows.first + (block * FIRST + $w) * (TOGETHER / 4u));
  #endfor
  #if LAST
  #for w LAST
  words[FIRST + $w] = packed4(rows.last + (block * LAST + $w) * (TOGETHER / 4u));
  #endfor
  #endif
  return words;
}
// The level of byte c, times 1 / BYTE_FACTORS[c]: bytes need not be moved to the lower end of a word.
#if TABLE
const BYTE_FACTORS = vec4<f32>(1.0);
fn level(bytes: vec4<u32>, c: u32) -> vec4<f32> {
  let code = (bytes >> vec4<u32>(8u * c)) & vec4<u32>(15u);
  let lower = select(vec4<u32>(table(0u)), vec4<u32>(table(1u)), (code & vec4<u32>(4u)) != vec4<u32>(0u));
  let upper = select(vec4<u32>(table(2u)), vec4<u32>(table(3u)), (code & vec4<u32>(4u)) != vec4<u32>(0u));
  let four = select(lower, upper, code >= vec4<u32>(8u));
  return vec4<f32>(bitcast<vec4<i32>>(four << (vec4<u32>(24u) - (code & vec4<u32>(3u)) * 8u)) >> vec4<u32>(24u));
}
#else
#if SIGNED
const BYTE_FACTORS = vec4<f32>(0x1p-24);
fn level(bytes: vec4<u32>, c: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>((bytes << vec4<u32>(24u - 8u * c)) & vec4<u32>(0xff000000u)));
}
#else
const BYTE_FACTORS = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 0x1p-24);
fn level(bytes: vec4<u32>, c: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(255u << (8u * c))));
}
#endif
#endif

// ---- Scales.
fn scale_words(rows: Rows, unit: u32, word: u32) -> vec4<u32> {
  return packed4(rows.scales + (unit * SCALES + word) * (TOGETHER / 4u));
}
fn lower_half(w: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(halves(w.x).x, halves(w.y).x, halves(w.z).x, halves(w.w).x);
}
fn upper_half(w: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(halves(w.x).y, halves(w.y).y, halves(w.z).y, halves(w.w).y);
}
fn one_scale(scale: vec4<f32>, minimum: vec4<f32>) -> Scales { return Scales(scale, minimum, scale, minimum); }
fn two_scales(low: vec4<f32>, high: vec4<f32>) -> Scales {
  return Scales(low, vec4<f32>(), high, vec4<f32>());
}
fn bits_at(words: vec4<u32>, shift: u32, mask: u32) -> vec4<f32> {
  return vec4<f32>((words >> vec4<u32>(shift)) & vec4<u32>(mask));
}
fn signed_at(words: vec4<u32>, shift: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(words << vec4<u32>(24u - shift)) >> vec4<u32>(24u));
}

fn interleaved_half(rows: Rows, block: u32) -> Scales {
  return one_scale(lower_half(scale_words(rows, block / 2u, 0u) >> vec4<u32>(block % 2u * 16u)), vec4<f32>());
}
fn interleaved_bfloat(rows: Rows, block: u32) -> Scales {
  let words = scale_words(rows, block / 2u, 0u) >> vec4<u32>(block % 2u * 16u);
  return one_scale(bitcast<vec4<f32>>(words << vec4<u32>(16u)), vec4<f32>());
}
fn interleaved_halves(rows: Rows, block: u32) -> Scales {
  let words = scale_words(rows, block, 0u);
  return one_scale(lower_half(words), upper_half(words));
}
fn interleaved_parts(rows: Rows, block: u32) -> Scales {
  let words = scale_words(rows, block, 0u);
  return two_scales(lower_half(words), upper_half(words));
}
fn interleaved_sixes(rows: Rows, block: u32) -> Scales {
  let unit = block / 8u;
  let shift = block % 8u / 2u * 8u;
  let factors = scale_words(rows, unit, 0u);
  let x = scale_words(rows, unit, 1u);
  let y = scale_words(rows, unit, 2u);
  let z = scale_words(rows, unit, 3u);
  var scale = bits_at(x, shift, 63u);
  var low = bits_at(y, shift, 63u);
  if (block % 2u == 1u) {
    scale = bits_at(z, shift, 63u);
    low = bits_at(x, shift + 6u, 3u) + 4.0 * bits_at(y, shift + 6u, 3u) + 16.0 * bits_at(z, shift + 6u, 3u);
  }
  return one_scale(lower_half(factors) * scale, -upper_half(factors) * low);
}
fn interleaved_nibbles(rows: Rows, block: u32) -> Scales {
  let factors = scale_words(rows, block / 8u, 0u);
  let parts = scale_words(rows, block / 8u, 1u + block % 8u / 2u) >> vec4<u32>(block % 2u * 16u);
  let scale = lower_half(factors);
  let low = -upper_half(factors);
  return Scales(scale * bits_at(parts, 0u, 15u), low * bits_at(parts, 4u, 15u), scale * bits_at(parts, 8u, 15u),
                low * bits_at(parts, 12u, 15u));
}
fn interleaved_bytes(rows: Rows, block: u32) -> Scales {
  let parts = scale_words(rows, block / 8u, 1u + block % 8u / 2u) >> vec4<u32>(block % 2u * 16u);
  let factor = bitcast<vec4<f32>>(scale_words(rows, block / 8u, 0u));
  return two_scales(factor * signed_at(parts, 0u), factor * signed_at(parts, 8u));
}
// The offset of the codes is part of the minimum.
fn with_offset(s: Scales) -> Scales {
  return Scales(s.low, s.low_minimum - f32(offset()) * s.low, s.high, s.high_minimum - f32(offset()) * s.high);
}
