// What `count` splits left, put together: a workgroup makes what HEADS heads of a token give.
// Written around this by cached_decode.cpp: partial, what was left; sink.
var<workgroup> tops: array<f32, HEADS * MOST_SPLITS>;    // then: what a split's sums count
var<workgroup> totals: array<f32, HEADS * MOST_SPLITS>;

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

// Element i of what BATCH splits from s on left.
fn batch_of(place: Place, count: u32, i: u32, s: u32) -> array<f32, BATCH> {
  var x = array<f32, BATCH>();
  #for k BATCH
  x[$k] = partial(sums_at(place.row + i / VALUE_DIM, min(s + $k, count - 1u)) + i % VALUE_DIM);
  #endfor
  return x;
}

fn combine(place: Place, count: u32, thread: u32) {
  // On its way while it is found out what splits count.
  let first = batch_of(place, count, min(thread, place.count * VALUE_DIM - 1u), 0u);
  let lane = thread % LANES;
  let h = thread / LANES;
  let here = h < place.count;
  let splits_end = (count + BATCH - 1u) / BATCH * BATCH;
  var top = HIDDEN;
  for (var s = lane; here && s < splits_end; s += LANES) {
    var stats = vec2<f32>(HIDDEN, 0.0);
    if (s < count) {
      let at = stats_at(place.row + h, s);
      stats = vec2<f32>(partial(at), partial(at + 1u));
    }
    tops[h * MOST_SPLITS + s] = stats.x;
    totals[h * MOST_SPLITS + s] = stats.y;
    top = max(top, stats.x);
  }
  #if SINKS
  if (here) { top = max(top, sink(place.head + h)); }
  #endif
  top = lanes_max(top, thread);
  var total = 0.0;
  for (var s = lane; here && s < splits_end; s += LANES) {
    let factor = weft_exp(tops[h * MOST_SPLITS + s] - top);
    tops[h * MOST_SPLITS + s] = factor;
    total += factor * totals[h * MOST_SPLITS + s];
  }
  // A sink is a score more in the sum of weights, and nothing more in what is summed up.
  #if SINKS
  if (here && lane == 0u) { total += weft_exp(sink(place.head + h) - top); }
  #endif
  total = lanes_sum(total, thread);
  for (var s = lane; here && s < splits_end; s += LANES) {
    let at = h * MOST_SPLITS + s;
    tops[at] = select(tops[at] / total, 0.0, totals[at] == 0.0);
  }
  workgroupBarrier();

  for (var i = thread; i < place.count * VALUE_DIM; i += THREADS) {
    var sum = 0.0;
    for (var s = 0u; s < splits_end; s += BATCH) {
      var x = first;
      if (i >= THREADS || s > 0u) { x = batch_of(place, count, i, s); }
      #for k BATCH
      {
        let share = tops[i / VALUE_DIM * MOST_SPLITS + s + $k];
        sum += select(share * x[$k], 0.0, share == 0.0);  // a split that saw nothing left no sums
      }
      #endfor
    }
    outcomes[i] = sum;
  }
  workgroupBarrier();
  finish(place, thread);
}
