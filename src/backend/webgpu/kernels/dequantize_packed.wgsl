// 8 elements of packed weights to floats, so that neighbouring invocations write neighbouring vectors: more is written than
// read. Written around this by quant.cpp: levels and scales of a block (qmatmul.wgsl), size_n, store8(at, low, high), main.
fn dequantize(at: u32) {
  let quarter = at % 4u;
  let row = at / 4u / blocks();
  let block = at / 4u % blocks();
  if (row >= size_n()) { return; }
  let w = levels(row, block);
  let s = scales(row, block);
  let words = select(w.low, w.high, quarter >= 2u);
  let pair = select(s.xy, s.zw, quarter >= 2u);
  let two = select(words.xy, words.zw, quarter % 2u == 1u);
  store8(at, floats_of(two.x) * pair.x + vec4<f32>(pair.y), floats_of(two.y) * pair.x + vec4<f32>(pair.y));
}
