// Codes of activations: x / largest * 127 to the nearest whole number, a byte, and perhaps a rest: what is left in
// 256ths, another one.
fn max_of(four: vec4<f32>) -> f32 { return max(max(four.x, four.y), max(four.z, four.w)); }
fn inverse_of(largest: f32) -> f32 { return select(127.0 / largest, 0.0, largest == 0.0); }
fn code_of(four: vec4<f32>) -> vec4<f32> { return round(four); }
fn rest_of(four: vec4<f32>) -> vec4<f32> {
  return clamp(round((four - round(four)) * 256.0), vec4<f32>(-127.0), vec4<f32>(127.0));
}
fn bytes_of(four: vec4<f32>) -> u32 {
  let b = bitcast<vec4<u32>>(vec4<i32>(four)) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}
// In units of the scale.
fn sum_of(four: vec4<f32>, rests: bool) -> f32 {
  if (rests) { return dot(code_of(four) * 256.0 + rest_of(four), vec4<f32>(1.0)); }
  return dot(code_of(four), vec4<f32>(1.0));
}
fn facts_of(largest: f32, sums: vec2<f32>, rests: bool) -> vec4<u32> {
  return bitcast<vec4<u32>>(vec4<f32>(largest / select(127.0, 32512.0, rests), sums, sums.x + sums.y));
}
