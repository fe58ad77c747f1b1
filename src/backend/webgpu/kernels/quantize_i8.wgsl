// 32 elements of x to 8 bits: in the order that qmatmul_x_i8.wgsl describes. Written around this by qmatmul.cpp: x4(i),
// store4(i, words), all_blocks(), and main.
fn code_word(four: vec4<f32>, inverse: f32) -> vec4<i32> { return vec4<i32>(round(four * inverse)); }
fn sum_of(four: vec4<i32>) -> i32 { return (four.x + four.y) + (four.z + four.w); }
fn bytes_of(four: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(four) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

fn quantize(block: u32) {
  if (block >= all_blocks()) { return; }
  var most = vec4<f32>();
  for (var j = 0u; j < 8u; j++) { most = max(most, abs(x4(block * 8u + j))); }
  let largest = max(max(most.x, most.y), max(most.z, most.w));
  let inverse = select(127.0 / largest, 0.0, largest == 0.0);
  let scale = largest / 127.0;
  var codes: array<vec4<u32>, 2>;
  var sums: array<i32, 2>;
  for (var half = 0u; half < 2u; half++) {
    for (var j = 0u; j < 4u; j++) {
      let four = code_word(x4(block * 8u + half * 4u + j), inverse);
      codes[half][j] = bytes_of(four);
      sums[half] += sum_of(four);
    }
  }
  store4(block, codes[0]);
  store4(block + all_blocks(), codes[1]);
  let facts = bitcast<vec3<u32>>(vec3<f32>(scale, scale * f32(sums[0]), scale * f32(sums[1])));
  store4(block + 2u * all_blocks(), vec4<u32>(facts, bitcast<u32>((sums[0] & 0xffff) | (sums[1] << 16u))));
}
