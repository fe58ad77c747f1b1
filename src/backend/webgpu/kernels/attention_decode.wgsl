// Attention of few rows over many keys: a workgroup takes ROWS rows and a range of the keys, and leaves the weighted sum of
// their values with the largest score and the sum of weights. Eight invocations share a key's product, as many as there are
// pairs of columns a value.
// Written around this by attention.cpp: ROWS, PAIRS (of a value's columns) and MAX_PAIRS (of a key's); team_sum over eight
// invocations; finish.
const THREADS = 256u;
const TEAM = 8u;
const TEAMS = THREADS / TEAM;
const KEYS = 128u;             // at a time
const LANES = 32u;             // that share a row of scores
const PARTS = THREADS / PAIRS;

var<workgroup> query: array<vec2<f32>, ROWS * MAX_PAIRS>;
var<workgroup> weights: array<f32, ROWS * KEYS>;
var<workgroup> lane_values: array<f32, ROWS * LANES>;
var<workgroup> factors: array<f32, ROWS>;
var<workgroup> part_sums: array<vec2<f32>, THREADS>;

// The products of `count` keys from `first` on with the rows.
fn weigh_keys(head: Head, first_row: u32, first: u32, end: u32, thread: u32) {
  for (var pass_first = first; pass_first < first + KEYS; pass_first += TEAMS) {
    let key = pass_first + thread / TEAM;
    var sums = array<f32, ROWS>();
    if (key < end) {
      let at = row_of(KEY, head, key);
      for (var c = thread % TEAM; c * 2u < dim(); c += TEAM) {
        let k = load_pair(KEY, at, c * 2u);
        for (var r = 0u; r < ROWS; r++) { sums[r] += dot(k, query[r * MAX_PAIRS + c]); }
      }
    }
    for (var r = 0u; r < ROWS; r++) {
      let product = team_sum(sums[r], thread);
      if (thread % TEAM == 0u) {
        let row = first_row + r;
        let s = score(product, position_of(row), mask_row_of(head, row), key).x;
        weights[r * KEYS + key - first] = select(s, HIDDEN, key >= end);
      }
    }
  }
}

fn decode(index: u32, thread: u32) {
  let blocks = (rows() + ROWS - 1u) / ROWS;
  let split = index % splits();
  let head = head_of(index / splits() / blocks);
  let first_row = index / splits() % blocks * ROWS;
  for (var e = thread; e < ROWS * MAX_PAIRS; e += THREADS) {
    let row = first_row + e / MAX_PAIRS;
    let c = e % MAX_PAIRS * 2u;
    query[e] = vec2<f32>();
    if (row < rows() && c < dim()) { query[e] = load_pair(QUERY, row_of(QUERY, head, row), c); }
  }
  workgroupBarrier();

  let lane = thread % LANES;
  let lane_row = thread / LANES;
  let pair = thread % PAIRS;
  var top = HIDDEN;   // of the lane's row
  var total = 0.0;    // of the lane's keys
  var sums = array<vec2<f32>, ROWS>();
  let end = min((split + 1u) * split_keys(), keys());
  for (var first = split * split_keys(); first < end; first += KEYS) {
    weigh_keys(head, first_row, first, end, thread);
    workgroupBarrier();
    var highest = top;
    if (lane_row < ROWS) {
      for (var k = lane; k < KEYS; k += LANES) { highest = max(highest, weights[lane_row * KEYS + k]); }
      lane_values[thread] = highest;
    }
    workgroupBarrier();
    if (lane_row < ROWS) {
      for (var k = 0u; k < LANES; k++) { highest = max(highest, lane_values[lane_row * LANES + k]); }
      let factor = weft_exp(top - highest);
      total *= factor;
      for (var k = lane; k < KEYS; k += LANES) {
        let w = weight(weights[lane_row * KEYS + k], highest);
        weights[lane_row * KEYS + k] = w;
        total += w;
      }
      top = highest;
      if (lane == 0u) { factors[lane_row] = factor; }
    }
    workgroupBarrier();
    for (var r = 0u; r < ROWS; r++) { sums[r] *= factors[r]; }
    if (pair * 2u < value_dim()) {
      for (var k = thread / PAIRS; k < min(KEYS, end - first); k += PARTS) {
        let v = load_pair(VALUE, row_of(VALUE, head, first + k), pair * 2u);
        for (var r = 0u; r < ROWS; r++) { sums[r] += weights[r * KEYS + k] * v; }
      }
    }
    workgroupBarrier();
  }

  if (lane_row < ROWS) { lane_values[thread] = total; }
  if (lane_row < ROWS && lane == 0u) { factors[lane_row] = top; }
  workgroupBarrier();
  for (var r = 0u; r < ROWS; r++) {
    part_sums[thread] = sums[r];
    workgroupBarrier();
    if (thread < PAIRS && first_row + r < rows() && pair * 2u < value_dim()) {
      var sum = vec2<f32>();
      for (var part = 0u; part < PARTS; part++) { sum += part_sums[part * PAIRS + pair]; }
      var row_total = 0.0;
      for (var k = 0u; k < LANES; k++) { row_total += lane_values[r * LANES + k]; }
      finish(output_row(head, first_row + r), split, pair * 2u, sum, factors[r], row_total);
    }
    workgroupBarrier();
  }
}
