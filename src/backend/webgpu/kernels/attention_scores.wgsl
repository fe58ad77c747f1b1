// What every form of attention needs. Rows are the queries that share a key head: row r is position r / group() of the
// group's query head r % group().
// Written around this by attention.cpp: the sizes; Head (index, offsets of its arrays) and head_of; for the sources QUERY,
// KEY, VALUE, GRADIENT columns, row_of, load and load_pair; mask_bias; position_of a row, the key that is its own.
const OUT = 0u;               // the forward kernels' output
const NOWHERE = 0xffffffffu;  // row_of a row that is not there
const HIDDEN = -3.0e38;       // the score of a key that a query does not see
const LOW = -1.0e38;          // scores below are hidden
const LEAST = -0.9e38;        // that a mask adds to a score without hiding it

// What a mask of floats adds: -inf hides, the lowest finite number does not.
fn bias_of(b: f32) -> f32 { return select(b, select(LEAST, HIDDEN, weft_isinf(b)), b < LEAST); }

// The score of a product, and what the cap's slope is there.
fn score(product: f32, position: i32, mask_row: u32, key: u32) -> vec2<f32> {
  let distance = i32(key) - position;
  if (key >= keys() || distance > ahead() || -distance > back()) { return vec2<f32>(HIDDEN, 0.0); }
  var s = product * scale();
  var slope = 1.0;
  if (softcap() > 0.0) {
    let t = weft_tanh(s / softcap());
    s = t * softcap();
    slope = 1.0 - t * t;
  }
  return vec2<f32>(s + mask_bias(mask_row + key * mask_column()), slope);
}

fn weight(s: f32, top: f32) -> f32 { return select(exp(s - top), 0.0, s < LOW); }

// The gradient of a product, from its score, its weight and the gradient of that.
fn slope_of(s: vec2<f32>, w: f32, of_weight: f32, delta: f32) -> f32 { return w * (of_weight - delta) * s.y * scale(); }

fn mask_row_of(head: Head, row: u32) -> u32 {
  return head.mask + row % group() * mask_head() + row / group() * mask_token();
}
// The row's index in (.., heads, tokens), or in (tokens, heads).
fn output_row(head: Head, row: u32) -> u32 {
  return (head.index * group() + row % group()) * head_rows() + row / group() * token_rows();
}
