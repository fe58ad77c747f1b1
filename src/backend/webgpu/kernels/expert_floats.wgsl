// Fours of plain floats for qmatmul_tiles.wgsl, beside matmul_x.wgsl.
fn four_of_x(row: u32, at: u32) -> vec4<f32> { return x4(row * sixteens() * 4u + at); }
fn four_of_w(row: u32, sixteen: u32, four: u32) -> vec4<f32> {
  let at = sixteen * 4u + four;
  if (FULL) { return bitcast<vec4<f32>>(w4(row * blocks() + at)); }
  let words = w4(row * blocks() + at / 2u);
  if (at % 2u == 0u) { return vec4<f32>(pair_of(words.x), pair_of(words.y)); }
  return vec4<f32>(pair_of(words.z), pair_of(words.w));
}
