// 8 elements of four rows of interleaved weights (interleaved.wgsl) to floats. Written around this by quant.cpp: size_n,
// store8(at, low, high), main.
fn four_levels(bytes: vec4<u32>, scale: vec4<f32>, minimum: vec4<f32>) -> array<vec4<f32>, 4> {
  var values: array<vec4<f32>, 4>;  // each of four rows
  #for c 4
  values[$c] = level(bytes, $c) * BYTE_FACTORS[$c] * scale + minimum;
  #endfor
  return values;
}
fn bytes_at(rows: Rows, block: u32, j: u32) -> vec4<u32> {
  var last: vec4<u32>;
  #if LAST
  last = last_word(rows, block, j * LAST / 8u);
  #endif
  return code_bytes(first_word(rows, block, j * FIRST / 8u), last, j);
}
fn dequantize_eight(at: u32) {
  let quarter = at % 4u;
  let block = at / 4u % blocks();
  let row = at / 4u / blocks() * 4u;
  if (row >= size_n()) { return; }
  let rows = rows_of(row);
  let s = scales(rows, block);
  let scale = select(s.low, s.high, quarter >= 2u);
  let minimum = select(s.low_minimum, s.high_minimum, quarter >= 2u);
  let low = four_levels(bytes_at(rows, block, quarter * 2u), scale, minimum);
  let high = four_levels(bytes_at(rows, block, quarter * 2u + 1u), scale, minimum);
  for (var r = 0u; r < 4u && row + r < size_n(); r++) {
    store8(((row + r) * blocks() + block) * 4u + quarter, vec4<f32>(low[0][r], low[1][r], low[2][r], low[3][r]),
           vec4<f32>(high[0][r], high[1][r], high[2][r], high[3][r]));
  }
}
