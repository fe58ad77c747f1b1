// Attention of few tokens over a cache: a workgroup takes HEADS query heads of one key head for one token, and a range of
// the keys (a split). It leaves the weighted sum of the values, the largest score and the sum of weights; SINGLE: all keys,
// and what attention gives.
//
// TEAM invocations share four keys, VALUE_TEAM share VALUE_KEYS values, each with eight columns of them: a load of halves has
// 16 bytes. All loads of KEYS keys and their values are under way before the first score is needed.
// Written around this by cached_decode.cpp: the constants; sizes; key_words, value_words; query_element, key_row,
// key_position, key_sequence, position, sequence, slope; put, which returns 0. IN_ORDER: a token sees the keys from one up
// to itself, so none has to be looked for. A kernel of ONE_DISPATCH has cached_combine.wgsl, too.
const PARTS = THREADS / VALUE_TEAM;

var<workgroup> query: array<vec4<f32>, HEADS * EIGHTS * 2u>;
var<workgroup> columns: array<f32, AT_ONCE * 8u * THREADS>;
var<workgroup> weights: array<f32, HEADS * KEYS>;
var<workgroup> factors: array<f32, HEADS>;
var<workgroup> stats: array<vec2<f32>, HEADS>;  // largest score, sum of weights; SINGLE: in .y what a sum counts

// Four sums over a team: invocation i of it gets number i % 4.
#if SHUFFLES
fn team_sums(x: vec4<f32>, thread: u32) -> f32 {
  let odd = (thread & 1u) != 0u;
  let upper = (thread & 2u) != 0u;
  let pair = select(x.xz, x.yw, odd) + subgroupShuffleXor(select(x.yw, x.xz, odd), 1u);
  var sum = select(pair.x, pair.y, upper) + subgroupShuffleXor(select(pair.y, pair.x, upper), 2u);
  for (var i = 4u; i < TEAM; i *= 2u) { sum += subgroupShuffleXor(sum, i); }
  return sum;
}
#else
var<workgroup> team_values: array<vec4<f32>, THREADS>;
fn team_sums(x: vec4<f32>, thread: u32) -> f32 {
  team_values[thread] = x;
  workgroupBarrier();
  var sum = vec4<f32>();
  for (var i = thread / TEAM * TEAM; i < thread / TEAM * TEAM + TEAM; i++) { sum += team_values[i]; }
  workgroupBarrier();
  return sum[thread % 4u];
}
#endif

#if IN_ORDER
fn is_seen(key: u32, end: u32) -> bool { return key < end; }
fn row_of(key: u32, token: u32, end: u32) -> u32 { return key_row(first_key(token) + min(key, end - 1u)); }
#if SLOPES
fn distance_to(key: u32, token: u32) -> f32 { return f32(position(token) - i32(key)); }
#endif
#else
var<workgroup> rows: array<u32, SPAN>;
#if SLOPES
var<workgroup> distances: array<f32, SPAN>;
fn distance_to(key: u32, token: u32) -> f32 { return distances[key]; }
#endif
var<workgroup> found: atomic<u32>;
var<workgroup> chunks_found: u32;

// Of a span's keys.
fn is_seen(key: u32, end: u32) -> bool { return rows[key] != NOWHERE; }
fn row_of(key: u32, token: u32, end: u32) -> u32 { return select(rows[key], 0u, rows[key] == NOWHERE); }

// Which chunks of KEYS keys from `first` on have one that the token sees, a bit for each. Fills `rows`.
fn find_keys(token: u32, first: u32, end: u32, thread: u32) -> u32 {
  if (thread == 0u) { atomicStore(&found, 0u); }
  workgroupBarrier();
  var chunks = 0u;
  for (var i = thread; i < (end - first + KEYS - 1u) / KEYS * KEYS; i += THREADS) {
    rows[i] = NOWHERE;
    if (first + i >= end) { continue; }
    let distance = position(token) - key_position(first + i);
    let in_window = (!CAUSAL || distance >= 0) && (!WINDOW || distance < window());
    let row = key_row(first + i);
    if (key_sequence(first + i) == sequence(token) && in_window) {
      rows[i] = row;
      chunks |= 1u << (i / KEYS);
    }
    #if SLOPES
    distances[i] = f32(distance);
    #endif
  }
  if (chunks != 0u) { atomicOr(&found, chunks); }
  workgroupBarrier();
  if (thread == 0u) { chunks_found = atomicLoad(&found); }
  return workgroupUniformLoad(&chunks_found);
}
#endif

fn score(product: f32, head: u32, key: u32, token: u32, end: u32) -> f32 {
  if (!is_seen(key, end)) { return HIDDEN; }
  var s = product;
  #if SOFTCAP
  s = weft_tanh(s / softcap()) * softcap();
  #endif
  #if SLOPES
  s -= distance_to(key, token) * slope(head);
  #endif
  return s;
}

#if SINGLE
// What a sum counts: 1 / the sum of all weights. A sink is a score more in it.
fn share_of(top: f32, total: f32, head: u32) -> f32 {
  #if SINKS
  let most = max(top, sink(head));
  return weft_exp(top - most) / (total * weft_exp(top - most) + weft_exp(sink(head) - most));
  #else
  return select(1.0 / total, 0.0, total == 0.0);
  #endif
}
#endif

#if ONE_DISPATCH
var<workgroup> odd: u32;
var<workgroup> is_last: u32;

// Whether the other splits have left what they found. Nothing in WGSL says that it can be seen then; where this is used,
// Features::last_workgroup does. `returned` is 0, but no compiler knows, so every put is over before the counter moves.
fn arrives_last(counter: u32, count_of_all: u32, returned: u32, thread: u32) -> bool {
  if (thread == 0u) { odd = 0u; }
  workgroupBarrier();
  if (returned != 0u) { odd = 1u; }
  workgroupBarrier();
  if (thread == 0u) {
    is_last = select(0u, 1u, count(counter, 1u + odd) == count_of_all - 1u);
    if (is_last == 1u) { reset(counter); }
  }
  return workgroupUniformLoad(&is_last) == 1u;
}
#endif

// What is in `columns` for some of the heads, eight columns of each invocation for each head: sums over the parts.
fn put_sums(place: Place, split: u32, first_head: u32, end_head: u32, thread: u32) -> u32 {
  workgroupBarrier();
  var returned = 0u;
  for (var i = thread; i < (min(end_head, place.count) - min(first_head, place.count)) * VALUE_DIM; i += THREADS) {
    let head = first_head + i / VALUE_DIM;
    let column = i % VALUE_DIM;
    let at = (i / VALUE_DIM * 8u + column % 8u) * THREADS + column / 8u;
    var sum = 0.0;
    for (var part = 0u; part < PARTS; part++) { sum += columns[at + part * VALUE_TEAM]; }
    #if SINGLE
    outcomes[head * VALUE_DIM + column] = select(sum * stats[head].y, 0.0, stats[head].y == 0.0);
    #else
    returned |= put(sums_at(place.row + head, split) + column, sum);
    #endif
  }
  workgroupBarrier();
  return returned;
}

fn decode(index: u32, thread: u32) {
  let place = place_of(index / splits());
  let split = index % splits();
  // By what the token sees and not by what there is room for: a plan is made once for a text that grows.
  let range = visible(place.token);
  let chunks_seen = (range.y - range.x + KEYS - 1u) / KEYS;
  let split_chunks = (chunks_seen + splits() - 1u) / splits();
  let used = (chunks_seen + split_chunks - 1u) / split_chunks;
  #if ONE_DISPATCH
  if (split >= used) { return; }
  #endif
  for (var i = thread; i < HEADS * EIGHTS * 2u; i += THREADS) {
    let head = place.head + min(i / (EIGHTS * 2u), place.count - 1u);
    let c = i % (EIGHTS * 2u) * 4u;
    query[i] = vec4<f32>(query_element(place.token, head, c), query_element(place.token, head, c + 1u),
                         query_element(place.token, head, c + 2u), query_element(place.token, head, c + 3u)) * scale();
  }

  let team = thread / TEAM;
  let member = thread % TEAM;
  let part = thread / VALUE_TEAM;
  let value_eight = thread % VALUE_TEAM;
  let lane = thread % LANES;
  let lane_head = thread / LANES;
  var top = HIDDEN;  // of the lane's head
  var total = 0.0;   // of the lane's keys
  var any = false;
  var sums = array<Eight, HEADS>();
  let sequence_key = first_key(place.token);
  let end = min(range.x + (split + 1u) * split_chunks * KEYS, range.y);
  #if IN_ORDER
  {
    for (var first = range.x + split * split_chunks * KEYS; first < end; first += KEYS) {
  #else
  for (var span = range.x + split * split_chunks * KEYS; span < end; span += SPAN) {
    var chunks = find_keys(place.token, sequence_key + span, sequence_key + min(span + SPAN, end), thread);
    while (chunks != 0u) {
      let first = firstTrailingBit(chunks) * KEYS;
      chunks &= chunks - 1u;
  #endif
      any = true;

      // No load waits for another's condition: rows that are not seen are read from a place that can be.
      var key_rows = array<u32, 4>();
      #for k 4
      key_rows[$k] = row_of(first + team * 4u + $k, place.token, end);
      #endfor
      var value_rows = array<u32, VALUE_KEYS>();
      #for k VALUE_KEYS
      value_rows[$k] = row_of(first + part * VALUE_KEYS + $k, place.token, end);
      #endfor
      var raw = array<Raw, 4u * LOADS>();
      #for j LOADS
      #for k 4
      raw[$j * 4u + $k] = load_key(
          key_rows[$k] * key_pitch() + place.key_head * EIGHTS + min($j * TEAM + member, EIGHTS - 1u));
      #endfor
      #endfor
      var values = array<Raw, VALUE_KEYS>();
      #for k VALUE_KEYS
      values[$k] = load_value(
          value_rows[$k] * value_pitch() + place.key_head * VALUE_EIGHTS + min(value_eight, VALUE_EIGHTS - 1u));
      #endfor
      #if !IN_ORDER
      #for k VALUE_KEYS
      if (!is_seen(first + part * VALUE_KEYS + $k, end)) { values[$k] = Raw(); }  // perhaps no number
      #endfor
      #endif

      workgroupBarrier();  // queries and, of the chunk before, weights

      var products = array<vec4<f32>, HEADS>();
      #for j LOADS
      {
        let k0 = widen(raw[$j * 4u]);
        let k1 = widen(raw[$j * 4u + 1u]);
        let k2 = widen(raw[$j * 4u + 2u]);
        let k3 = widen(raw[$j * 4u + 3u]);
        // Eights behind the last one count nothing.
        let eight = min($j * TEAM + member, EIGHTS - 1u);
        let factor = select(0.0, 1.0, $j * TEAM + member < EIGHTS);
        #for h HEADS
        {
          let low = query[($h * EIGHTS + eight) * 2u] * factor;
          let high = query[($h * EIGHTS + eight) * 2u + 1u] * factor;
          products[$h] += vec4<f32>(dot(k0.low, low) + dot(k0.high, high), dot(k1.low, low) + dot(k1.high, high),
                                    dot(k2.low, low) + dot(k2.high, high), dot(k3.low, low) + dot(k3.high, high));
        }
        #endfor
      }
      #endfor
      #for h HEADS
      {
        let product = team_sums(products[$h], thread);
        let key = team * 4u + member;
        if (member < 4u) { weights[$h * KEYS + key] = score(product, place.head + $h, first + key, place.token, end); }
      }
      #endfor
      workgroupBarrier();

      var highest = top;
      if (lane_head < HEADS) {
        for (var k = lane; k < KEYS; k += LANES) { highest = max(highest, weights[lane_head * KEYS + k]); }
      }
      highest = lanes_max(highest, thread);
      if (lane_head < HEADS) {
        let factor = weft_exp(top - highest);
        total *= factor;
        for (var k = lane; k < KEYS; k += LANES) {
          let s = weights[lane_head * KEYS + k];
          let w = select(exp(s - highest), 0.0, s == HIDDEN);
          weights[lane_head * KEYS + k] = w;
          total += w;
        }
        if (lane == 0u) { factors[lane_head] = factor; }
      }
      top = highest;
      workgroupBarrier();

      #for h HEADS
      {
        let factor = factors[$h];
        sums[$h].low *= factor;
        sums[$h].high *= factor;
      }
      #endfor
      #for k VALUE_KEYS
      {
        let v = widen(values[$k]);
        #for h HEADS
        {
          let w = weights[$h * KEYS + part * VALUE_KEYS + $k];
          sums[$h].low += w * v.low;
          sums[$h].high += w * v.high;
        }
        #endfor
      }
      #endfor
    }
  }

  total = lanes_sum(total, thread);
  #if SINGLE
  if (lane_head < place.count && lane == 0u) { stats[lane_head].y = share_of(top, total, place.head + lane_head); }
  #else
  if (lane_head < HEADS && lane == 0u) { stats[lane_head] = vec2<f32>(top, total); }
  #endif
  workgroupBarrier();
  var returned = 0u;  // by every put: always 0, but what follows waits for it
  #if !SINGLE
  for (var h = thread; h < place.count; h += THREADS) {
    returned |= put(stats_at(place.row + h, split), stats[h].x) | put(stats_at(place.row + h, split) + 1u, stats[h].y);
  }
  #endif
  if (any || SINGLE) {
    #for h HEADS
    {
      #for i 4
      columns[($h % AT_ONCE * 8u + $i) * THREADS + thread] = sums[$h].low[$i];
      columns[($h % AT_ONCE * 8u + $i + 4u) * THREADS + thread] = sums[$h].high[$i];
      #endfor
      if (($h + 1u) % AT_ONCE == 0u || $h + 1u == HEADS) {
        returned |= put_sums(place, split, $h / AT_ONCE * AT_ONCE, $h + 1u, thread);
      }
    }
    #endfor
  }
  #if SINGLE
  finish(place, thread);
  #endif
  #if ONE_DISPATCH
  if (arrives_last(index / splits(), used, returned, thread)) { combine(place, used, thread); }
  #endif
}
