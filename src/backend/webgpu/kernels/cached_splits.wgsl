// What cached_decode.wgsl and cached_combine.wgsl share: who works at what, and where it is left.
// Written around this by cached_decode.cpp: the constants and sizes.
const HIDDEN = -3.0e38;  // the score of a key that a token does not see

var<workgroup> columns: array<f32, COLUMNS>;  // of the heads, one after the other

// What a workgroup works at: `count` query heads from `head` on, whose rows of the output are numbered from `row` on.
struct Place { token: u32, key_head: u32, head: u32, count: u32, row: u32 }
fn place_of(i: u32) -> Place {
  let key_head = i / blocks() % key_heads();
  let token = i / blocks() / key_heads();
  let first = i % blocks() * HEADS;
  let head = key_head * group() + first;
  return Place(token, key_head, head, min(HEADS, group() - first), token * key_heads() * group() + head);
}
fn sums_at(row: u32, split: u32) -> u32 { return (row * splits() + split) * (VALUE_DIM + 2u); }
fn stats_at(row: u32, split: u32) -> u32 { return sums_at(row, split) + VALUE_DIM; }

// Over LANES neighbours.
#if SHUFFLES
fn lanes_max(x: f32, thread: u32) -> f32 {
  var most = x;
  for (var i = 1u; i < LANES; i *= 2u) { most = max(most, subgroupShuffleXor(most, i)); }
  return most;
}
fn lanes_sum(x: f32, thread: u32) -> f32 {
  var sum = x;
  for (var i = 1u; i < LANES; i *= 2u) { sum += subgroupShuffleXor(sum, i); }
  return sum;
}
#else
var<workgroup> lane_values: array<f32, THREADS>;
fn lanes_max(x: f32, thread: u32) -> f32 {
  lane_values[thread] = x;
  workgroupBarrier();
  var most = x;
  for (var i = thread / LANES * LANES; i < thread / LANES * LANES + LANES; i++) { most = max(most, lane_values[i]); }
  workgroupBarrier();
  return most;
}
fn lanes_sum(x: f32, thread: u32) -> f32 {
  lane_values[thread] = x;
  workgroupBarrier();
  var sum = 0.0;
  for (var i = thread / LANES * LANES; i < thread / LANES * LANES + LANES; i++) { sum += lane_values[i]; }
  workgroupBarrier();
  return sum;
}
#endif
