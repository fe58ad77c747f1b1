// Plain floats for qmatmul_vectors.wgsl: a unit is four words of a row of weights. Written around this by join.cpp: x4(i)
// and w4(i), four words; blocks(), the units of a row; weft's conversions.
struct Bytes {
  words: vec4<u32>,
}
struct X {
  low: vec4<f32>,
  high: vec4<f32>,  // where a unit is 8 halves
}

fn levels(row: u32, block: u32) -> Bytes { return Bytes(w4(row * blocks() + block)); }
fn scales(row: u32, block: u32) -> vec4<f32> { return vec4<f32>(); }
fn load_x(row: u32, block: u32) -> X {
  let at = row * blocks() + block;
  if (FULL) { return X(x4(at), vec4<f32>()); }
  return X(x4(at * 2u), x4(at * 2u + 1u));
}
fn dot_x(x: X, w: Bytes, s: vec4<f32>) -> f32 {
  if (FULL) { return dot(x.low, bitcast<vec4<f32>>(w.words)); }
  return dot(x.low, vec4<f32>(pair_of(w.words.x), pair_of(w.words.y))) +
         dot(x.high, vec4<f32>(pair_of(w.words.z), pair_of(w.words.w)));
}
