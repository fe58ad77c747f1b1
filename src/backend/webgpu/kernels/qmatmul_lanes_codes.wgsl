// x in codes, as qmatmul_x_codes.wgsl describes them, for qmatmul_lanes.wgsl.
fn x_signed(word: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
fn x_at(i: u32) -> vec4<f32> {
  let block = i / 8u;
  let j = i % 8u;
  let all = size_m() * blocks();
  let at = block + j / 4u * all;
  var x = x_signed(x4(at)[j % 4u]);
  if (RESTS) { x = x * 256.0 + x_signed(x4(at + 2u * all)[j % 4u]); }
  return x * bitcast<f32>(x4(FACTS * all + block).x);
}
