// x of a product in the workgroup's memory, for qmatmul_rows.wgsl: codes that every workgroup makes itself of X_FOURS vectors of
// floats, while its first weights are on their way. EARLY of them are loaded before those.
// Written around this by qmatmul.cpp: x_four, encode_four.
struct Fetched { x: array<vec4<f32>, EARLY> }
fn fetch_x(thread: u32) -> Fetched {
  var fetched: Fetched;
  #for k EARLY
  fetched.x[$k] = x_four(min(thread + $k * THREADS, X_FOURS - 1u));
  #endfor
  return fetched;
}
fn stage_x(index: u32, thread: u32, fetched: Fetched) {
  #for k EARLY
  encode_four(thread + $k * THREADS, fetched.x[$k]);
  #endfor
  for (var i = thread + EARLY * THREADS; i < whole_subgroups(X_FOURS); i += THREADS) {
    encode_four(i, x_four(min(i, X_FOURS - 1u)));
  }
}
