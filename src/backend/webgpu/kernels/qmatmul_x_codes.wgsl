// x as activation_codes writes it: for all blocks of all rows the first 16 codes, then for all the last 16, then with
// RESTS what the codes leave likewise, then, as vector FACTS, for all the facts. So neighbouring invocations read
// neighbouring vectors. Written around this by qmatmul.cpp: x4(i), four words; ONE_SCALE: 32 elements of the weights have
// one, and not two; MINIMUM: they have minima.
struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  low_rest: vec4<u32>,
  high_rest: vec4<u32>,
  facts: vec4<f32>,  // the scale; the sums of the first and of the last 16 elements in its units, and of both
}

fn load_x(row: u32, block: u32) -> X {
  let at = row * blocks() + block;
  let all = size_m() * blocks();
  let facts = bitcast<vec4<f32>>(x4(at + FACTS * all));
  if (RESTS) { return X(x4(at), x4(at + all), x4(at + 2u * all), x4(at + 3u * all), facts); }
  return X(x4(at), x4(at + all), vec4<u32>(), vec4<u32>(), facts);
}
// One sum behind the other: an instruction multiplies four bytes and adds them to a sum.
fn add_dots(sum: i32, x: vec4<u32>, w: vec4<u32>) -> i32 {
  return (((sum + dot4_i8(x.x, w.x)) + dot4_i8(x.y, w.y)) + dot4_i8(x.z, w.z)) + dot4_i8(x.w, w.w);
}
fn dot_x(x: X, w: Bytes, s: vec4<f32>) -> f32 {
  var low = add_dots(0, x.low, w.low);
  var high = add_dots(select(0, low, ONE_SCALE), x.high, w.high);
  if (RESTS) {
    low = add_dots(select(256 * low, 256 * high, ONE_SCALE), x.low_rest, w.low);
    high = add_dots(select(256 * high, low, ONE_SCALE), x.high_rest, w.high);
  }
  var sum = 0.0;
  if (ONE_SCALE) {
    sum = s.x * f32(high);
    if (MINIMUM) { sum += s.y * x.facts.w; }
  } else {
    sum = s.x * f32(low) + s.z * f32(high);
    if (MINIMUM) { sum += s.y * x.facts.y + s.w * x.facts.z; }
  }
  return x.facts.x * sum;
}
