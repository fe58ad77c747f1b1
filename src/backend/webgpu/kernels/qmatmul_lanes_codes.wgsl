// x in codes, as qmatmul_x_codes.wgsl describes them, for qmatmul_lanes.wgsl.
fn x_at(i: u32) -> vec4<f32> {
  let block = i / 8u;
  let j = i % 8u;
  let all = size_m() * blocks();
  let at = block + j / 4u * all;
  var x = weft_signed_bytes(x4(at)[j % 4u]);
  if (RESTS) { x = x * 256.0 + weft_signed_bytes(x4(at + 2u * all)[j % 4u]); }
  return x * bitcast<f32>(x4(FACTS * all + block).x);
}
