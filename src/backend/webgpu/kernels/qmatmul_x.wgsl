// x in f32, and what 32 elements of it give with 32 levels. Written around this by qmatmul.cpp: x4(i), four elements.
struct X {
  four: array<vec4<f32>, 8>,
  sums: vec2<f32>,  // of elements 0 to 15 and 16 to 31
}

fn four_of_x(row: u32, at: u32) -> vec4<f32> { return x4(row * blocks() * 8u + at); }
fn load_x(row: u32, block: u32) -> X {
  var x: X;
  for (var j = 0u; j < 8u; j++) { x.four[j] = four_of_x(row, block * 8u + j); }
  let ones = vec4<f32>(1.0);
  x.sums = vec2<f32>(dot((x.four[0] + x.four[1]) + (x.four[2] + x.four[3]), ones),
                     dot((x.four[4] + x.four[5]) + (x.four[6] + x.four[7]), ones));
  return x;
}
// Four elements of the weights, of 16 that follow each other.
fn sixteens() -> u32 { return 2u * blocks(); }
fn four_of_w(row: u32, sixteen: u32, four: u32) -> vec4<f32> {
  let w = levels(row, sixteen / 2u);
  let s = scales(row, sixteen / 2u);
  if (sixteen % 2u == 0u) { return floats_of(w.low[four]) * s.x + vec4<f32>(s.y); }
  return floats_of(w.high[four]) * s.z + vec4<f32>(s.w);
}
fn dot_x(x: X, w: Bytes, s: vec4<f32>) -> f32 {
  let low = dot(x.four[0], floats_of(w.low.x)) + dot(x.four[1], floats_of(w.low.y)) +
            dot(x.four[2], floats_of(w.low.z)) + dot(x.four[3], floats_of(w.low.w));
  let high = dot(x.four[4], floats_of(w.high.x)) + dot(x.four[5], floats_of(w.high.y)) +
             dot(x.four[6], floats_of(w.high.z)) + dot(x.four[7], floats_of(w.high.w));
  return (low * s.x + x.sums.x * s.y) + (high * s.z + x.sums.y * s.w);
}
