// A block of four rows of interleaved weights (interleaved.wgsl) to floats. Written around this by quant.cpp: size_n,
// store8(at, low, high), main.
fn four_levels(bytes: vec4<u32>, scale: vec4<f32>, minimum: vec4<f32>) -> array<vec4<f32>, 4> {
  var values: array<vec4<f32>, 4>;  // each of four rows
  #for c 4
  values[$c] = level(bytes, $c) * BYTE_FACTORS[$c] * scale + minimum;
  #endfor
  return values;
}
fn dequantize(at: u32) {
  let block = at % blocks();
  let row = at / blocks() * 4u;
  if (row >= size_n()) { return; }
  let rows = rows_of(row);
  let bytes = code_bytes(load_codes(rows, block));
  let s = scales(rows, block);
  #for q 4
  {
    let scale = select(s.low, s.high, $q >= 2u);
    let minimum = select(s.low_minimum, s.high_minimum, $q >= 2u);
    let low = four_levels(bytes[2u * $q], scale, minimum);
    let high = four_levels(bytes[2u * $q + 1u], scale, minimum);
    for (var r = 0u; r < 4u && row + r < size_n(); r++) {
      store8(((row + r) * blocks() + block) * 4u + $q, vec4<f32>(low[0][r], low[1][r], low[2][r], low[3][r]),
             vec4<f32>(high[0][r], high[1][r], high[2][r], high[3][r]));
    }
  }
  #endfor
}
