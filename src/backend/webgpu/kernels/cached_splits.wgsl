// What cached_decode.wgsl and cached_combine.wgsl share: where splits leave what they found, and what attention gives.
// Written around this by cached_decode.cpp: the constants and sizes; store; tail, which goes on with the outcomes.

fn sums_at(row: u32, split: u32) -> u32 { return (row * splits() + split) * (VALUE_DIM + 4u); }
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

#if ENDS
var<workgroup> outcomes: array<f32, HEADS * VALUE_DIM>;

fn finish(place: Place, thread: u32) {
  for (var i = thread; i < place.count * VALUE_DIM; i += THREADS) { store(place.row * VALUE_DIM + i, outcomes[i]); }
  tail(place.token, place.head / HEADS, thread);
}
#endif
