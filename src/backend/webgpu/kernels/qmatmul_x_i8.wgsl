// x in 8 bits, as quantize_i8 writes it: for all blocks of all rows the first 16 codes, then for all the last 16, then
// for all the facts. So neighbouring invocations read neighbouring vectors. Written around this by qmatmul.cpp: x4(i),
// four words; ONE_SCALE: 32 elements of the weights have one, and not two; MINIMUM: they have minima, and the codes no
// offset().
struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  facts: vec4<u32>,  // scale, scale times the sums of the first and of the last 16 codes; both sums, 16 bits each
}

fn load_x(row: u32, block: u32) -> X {
  let at = row * blocks() + block;
  let all = size_m() * blocks();
  return X(x4(at), x4(at + all), x4(at + 2u * all));
}
fn dot_16(x: vec4<u32>, w: vec4<u32>) -> i32 {
  return (dot4_i8(x.x, w.x) + dot4_i8(x.y, w.y)) + (dot4_i8(x.z, w.z) + dot4_i8(x.w, w.w));
}
fn dot_x(x: X, w: Bytes, s: vec4<f32>) -> f32 {
  var low = dot_16(x.low, w.low);
  var high = dot_16(x.high, w.high);
  if (!MINIMUM) {  // offsets are taken off in integers
    low -= offset() * (bitcast<i32>(x.facts.w << 16u) >> 16u);
    high -= offset() * (bitcast<i32>(x.facts.w) >> 16u);
  }
  let facts = bitcast<vec3<f32>>(x.facts.xyz);
  var sum = 0.0;
  if (ONE_SCALE) {
    sum = facts.x * s.x * f32(low + high);
    if (MINIMUM) { sum += (facts.y + facts.z) * s.y; }
  } else {
    sum = facts.x * (f32(low) * s.x + f32(high) * s.z);
    if (MINIMUM) { sum += facts.y * s.y + facts.z * s.w; }
  }
  return sum;
}
