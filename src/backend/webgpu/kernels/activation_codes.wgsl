// Codes of 32 elements of x, in the order that qmatmul_x_codes.wgsl describes. Written around this by qmatmul.cpp: x4(i),
// store4(i, words), all_blocks(), and main; before it codes.wgsl.
fn encode_block(block: u32) {
  if (block >= all_blocks()) { return; }
  var most = vec4<f32>();
  for (var j = 0u; j < 8u; j++) { most = max(most, abs(x4(block * 8u + j))); }
  let largest = max_of(most);
  let inverse = inverse_of(largest);
  var sums = vec2<f32>();
  for (var half = 0u; half < 2u; half++) {
    var codes: vec4<u32>;
    var rests: vec4<u32>;
    for (var j = 0u; j < 4u; j++) {
      let four = x4(block * 8u + half * 4u + j) * inverse;
      codes[j] = bytes_of(code_of(four));
      rests[j] = bytes_of(rest_of(four));
      sums[half] += sum_of(four, RESTS);
    }
    store4(block + half * all_blocks(), codes);
    if (RESTS) { store4(block + (2u + half) * all_blocks(), rests); }
  }
  store4(block + FACTS * all_blocks(), facts_of(largest, sums, RESTS));
}
