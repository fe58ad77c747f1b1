// What cached_decode.wgsl and cached_combine.wgsl share: where splits leave what they found, and what attention gives.
// Written around this by cached_decode.cpp: the constants and sizes; store; tail, which goes on with the outcomes.

fn sums_at(row: u32, split: u32) -> u32 { return (row * splits() + split) * (VALUE_DIM + 4u); }
fn stats_at(row: u32, split: u32) -> u32 { return sums_at(row, split) + VALUE_DIM; }

#if ENDS
var<workgroup> outcomes: array<f32, HEADS * VALUE_DIM>;

fn finish(place: Place, thread: u32) {
  for (var i = thread; i < place.count * VALUE_DIM; i += THREADS) { store(place.row * VALUE_DIM + i, outcomes[i]); }
  tail(place.token, place.head / HEADS, thread);
}
#endif
