// Codes of activations: x / largest * 127 to the nearest whole number, a byte, and perhaps a rest: what is left in
// 256ths, another one. Whole numbers are taken from the last bits of a float: conversions are slow, and this ends most
// kernels of a token.
const LAST_BITS = 12582912.0;  // 1.5 * 2^23
fn whole_of(x: vec4<f32>) -> vec4<i32> { return bitcast<vec4<i32>>(x + LAST_BITS) - bitcast<i32>(LAST_BITS); }

// Sizes of floats are in the order of their bits, and NaN is the largest.
fn largest_bits(four: vec4<f32>) -> u32 {
  let bits = bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
}
fn inverse_of(largest: f32) -> f32 { return select(127.0 / largest, 0.0, largest == 0.0); }

fn bytes_of(four: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(four) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

struct Coded {
  codes: u32,
  rests: u32,
  sum: i32,  // in units of the scale
}
fn coded(four: vec4<f32>, rests: bool) -> Coded {
  let codes = whole_of(four);
  let left = clamp(whole_of((four - vec4<f32>(codes)) * 256.0), vec4<i32>(-127), vec4<i32>(127));
  let all = select(codes, codes * 256 + left, rests);
  return Coded(bytes_of(codes), bytes_of(left), (all.x + all.y) + (all.z + all.w));
}

// Fact i: the scale; the sums of the first and of the last 16 elements, and of both.
fn fact_of(i: u32, largest: f32, low: i32, high: i32, rests: bool) -> u32 {
  let sum = f32(select(0, low, i != 2u) + select(0, high, i != 1u));
  return bitcast<u32>(select(sum, largest / select(127.0, 32512.0, rests), i == 0u));
}

// Eight neighbours make the codes of a block, by shuffles, which cost an H200 half a microsecond where some of a subgroup
// are missing: so loops over vectors go on to the end of the last one.
fn whole_subgroups(count: u32) -> u32 { return (count + 31u) / 32u * 32u; }
