// 8 elements of packed weights to floats. Four invocations have a unit of 32 elements, their neighbours that of the next row, so that
// reads follow each other; writes are of 64 bytes or more. Written around this by quant.cpp: levels and scales of a block (qmatmul.wgsl),
// size_n, store8(at, low, high), main.
fn dequantize_eight(at: u32) {
  let quarter = at % 4u;
  let unit = at / 4u / BESIDE_ROWS;
  let row = unit / blocks() * BESIDE_ROWS + at / 4u % BESIDE_ROWS;
  let block = unit % blocks();
  if (row >= size_n()) { return; }
  let w = levels(row, block);
  let s = scales(row, block);
  let words = select(w.low, w.high, quarter >= 2u);
  let pair = select(s.xy, s.zw, quarter >= 2u);
  let two = select(words.xy, words.zw, quarter % 2u == 1u);
  store8((row * blocks() + block) * 4u + quarter, floats_of(two.x) * pair.x + vec4<f32>(pair.y),
         floats_of(two.y) * pair.x + vec4<f32>(pair.y));
}
