// x of a product behind attention: what splits of the keys left (cached_splits.wgsl), put together and made codes of, in the
// workgroup's memory. Every workgroup does all of it, while its first weights are on their way.
// Written around this by qmatmul.cpp: LEFT_HEADS, LEFT_FOURS: vectors of a head's sums; LEFT_LANES: neighbours that look at the
// splits of a head, most and total over them; left4, left_splits, sink; staged; encode_four; keep.
const LEFT_HIDDEN = -3.0e38;
const LEFT_BATCH = 8u;  // splits whose sums are loaded at once
var<workgroup> shares: array<f32, LEFT_HEADS * LEFT_LANES>;  // what a split's sums count

fn left_at(head: u32, split: u32) -> u32 { return (head * left_splits() + split) * (LEFT_FOURS + 1u); }

fn combined(i: u32) -> vec4<f32> {
  let head = i / LEFT_FOURS;
  var sum = vec4<f32>();
  for (var s = 0u; s < left_splits(); s += LEFT_BATCH) {
    var x: array<vec4<f32>, LEFT_BATCH>;
    #for k 8
    x[$k] = left4(left_at(head, min(s + $k, left_splits() - 1u)) + i % LEFT_FOURS);
    #endfor
    #for k 8
    {
      let share = shares[head * LEFT_LANES + s + $k];
      sum += select(share * x[$k], vec4<f32>(), share == 0.0);  // a split that saw nothing left no sums
    }
    #endfor
  }
  return sum;
}

// The largest score and the sum of weights of what lane i of all looks at; the first one is loaded before the weights.
fn left_stats(i: u32) -> vec2<f32> {
  let split = i % LEFT_LANES;
  let stats = left4(left_at(min(i / LEFT_LANES, LEFT_HEADS - 1u), min(split, left_splits() - 1u)) + LEFT_FOURS).xy;
  return select(stats, vec2<f32>(LEFT_HIDDEN, 0.0), split >= left_splits());
}
struct Fetched { stats: vec2<f32> }
fn fetch_x(thread: u32) -> Fetched { return Fetched(left_stats(thread)); }

fn stage_x(index: u32, thread: u32, fetched: Fetched) {
  for (var i = thread; i < whole_subgroups(LEFT_HEADS * LEFT_LANES); i += THREADS) {
    let head = min(i / LEFT_LANES, LEFT_HEADS - 1u);
    var stats = fetched.stats;
    if (i != thread) { stats = left_stats(i); }
    var top = most(stats.x);
    // A sink is a score more in the sum of weights, and nothing more in what is summed up.
    #if SINKS
    top = max(top, sink(head));
    #endif
    let factor = weft_exp(stats.x - top);
    var all = total(factor * stats.y);
    #if SINKS
    all += weft_exp(sink(head) - top);
    #endif
    if (i < LEFT_HEADS * LEFT_LANES) { shares[i] = select(factor / all, 0.0, stats.y == 0.0); }
  }
  workgroupBarrier();
  for (var i = thread; i < whole_subgroups(LEFT_HEADS * LEFT_FOURS); i += THREADS) {
    encode_four(i, combined(min(i, LEFT_HEADS * LEFT_FOURS - 1u)));
  }
  workgroupBarrier();
  if (index == 0u) {
    for (var i = thread; i < X_VECTORS; i += THREADS) { keep(i); }
  }
}
