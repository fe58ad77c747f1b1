// Attention of few tokens over a cache: a workgroup takes HEADS query heads of one key head for one token, and a part of
// the keys (a split). It leaves the weighted sum of the values, the largest score and the sum of weights; SINGLE: all keys,
// and what attention gives.
//
// TEAM invocations share four keys and their values, each with eight columns of them: a load of halves has 16 bytes. A team
// sums up what it sees without waiting for others; what the teams of a crew, and then the crews, have seen is put together
// at the end. Keys and values are under way before anything else is loaded, and the next ones before the first score.
// Written around this by cached_decode.cpp: the constants; sizes; key_words, value_words; query_element, key_row,
// key_position, key_sequence, position, sequence, slope; put, which returns 0. IN_ORDER: a token sees the keys from one up
// to itself, so none has to be looked for. A kernel of ONE_DISPATCH has cached_combine.wgsl, too.

const QUERIES = HEADS * EIGHTS * 2u;
var<workgroup> query: array<vec4<f32>, QUERIES>;
var<workgroup> columns: array<f32, AT_ONCE * CREWS * VALUE_DIM>;
var<workgroup> crew_stats: array<vec2<f32>, HEADS * CREWS>;  // largest score, sum of weights

// team_sums: four sums over a team, of which invocation i gets number i % 4. team_top: the largest of those four's numbers.
// team_fours: all of them.
#if SHUFFLES
fn team_sums(x: vec4<f32>, thread: u32) -> f32 {
  let odd = (thread & 1u) != 0u;
  let upper = (thread & 2u) != 0u;
  let pair = select(x.xz, x.yw, odd) + subgroupShuffleXor(select(x.yw, x.xz, odd), 1u);
  var sum = select(pair.x, pair.y, upper) + subgroupShuffleXor(select(pair.y, pair.x, upper), 2u);
  for (var i = 4u; i < TEAM; i *= 2u) { sum += subgroupShuffleXor(sum, i); }
  return sum;
}
fn team_top(x: f32, thread: u32) -> f32 {
  let pair = max(x, subgroupShuffleXor(x, 1u));
  return max(pair, subgroupShuffleXor(pair, 2u));
}
fn team_fours(x: f32, thread: u32) -> vec4<f32> {
  let other = subgroupShuffleXor(x, 1u);
  let pair = select(vec2<f32>(x, other), vec2<f32>(other, x), (thread & 1u) != 0u);
  let others = subgroupShuffleXor(pair, 2u);
  return select(vec4<f32>(pair, others), vec4<f32>(others, pair), (thread & 2u) != 0u);
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
fn team_fours(x: f32, thread: u32) -> vec4<f32> {
  team_values[thread].x = x;
  workgroupBarrier();
  let first = thread / 4u * 4u;
  let fours = vec4<f32>(team_values[first].x, team_values[first + 1u].x, team_values[first + 2u].x,
                        team_values[first + 3u].x);
  workgroupBarrier();
  return fours;
}
fn team_top(x: f32, thread: u32) -> f32 {
  let fours = team_fours(x, thread);
  return max(max(fours.x, fours.y), max(fours.z, fours.w));
}
#endif

// What sums of weights that begin at `top` count beside others that begin at `highest`.
fn factor_of(top: f32, highest: f32) -> f32 { return select(exp(top - highest), 0.0, top == HIDDEN); }

#if IN_ORDER
fn is_seen(key: u32, end: u32) -> bool { return key < end; }
fn row_of(key: u32, token: u32) -> u32 { return key_row(first_key(token) + min(key, keys() - 1u)); }
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
fn row_of(key: u32, token: u32) -> u32 { return select(rows[key], 0u, rows[key] == NOWHERE); }

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

// Keys and values of a team.
struct Batch {
  keys: array<Raw, 4u * LOADS>,
  values: array<Raw, 4u * VALUE_LOADS>,
}
// No load waits for another's condition: rows that are not seen are read from a place that can be.
fn load_batch(first: u32, place: Place, thread: u32) -> Batch {
  var batch: Batch;
  var rows_of_team = array<u32, 4>();
  #for k 4
  rows_of_team[$k] = row_of(first + thread / TEAM * 4u + $k, place.token);
  #endfor
  #for j LOADS
  #for k 4
  batch.keys[$j * 4u + $k] = load_key(
      rows_of_team[$k] * key_pitch() + place.key_head * EIGHTS + min($j * TEAM + thread % TEAM, EIGHTS - 1u));
  #endfor
  #endfor
  #for j VALUE_LOADS
  #for k 4
  batch.values[$j * 4u + $k] = load_value(rows_of_team[$k] * value_pitch() + place.key_head * VALUE_EIGHTS +
                                          min($j * TEAM + thread % TEAM, VALUE_EIGHTS - 1u));
  #endfor
  #endfor
  return batch;
}

// What sums of each crew count in those of all, and the largest score and the sum of weights of all.
struct Shares {
  factors: array<f32, CREWS>,
  stats: vec2<f32>,
}
fn shares_of(head: u32) -> Shares {
  var own = array<vec2<f32>, CREWS>();
  #for c CREWS
  own[$c] = crew_stats[head * CREWS + $c];
  #endfor
  var shares: Shares;
  shares.stats = own[0];
  #for c CREWS
  shares.stats.x = max(shares.stats.x, own[$c].x);
  #endfor
  shares.stats.y = 0.0;
  #for c CREWS
  shares.factors[$c] = factor_of(own[$c].x, shares.stats.x);
  shares.stats.y += own[$c].y * shares.factors[$c];
  #endfor
  return shares;
}

// What the crews have in `columns` for some of the heads.
fn put_sums(place: Place, split: u32, first_head: u32, end_head: u32, thread: u32) -> u32 {
  workgroupBarrier();
  var returned = 0u;
  for (var i = thread; i < (min(end_head, place.count) - min(first_head, place.count)) * VALUE_DIM; i += THREADS) {
    let head = first_head + i / VALUE_DIM;
    let column = i % VALUE_DIM;
    let shares = shares_of(head);
    var sum = 0.0;
    #for c CREWS
    sum += columns[(i / VALUE_DIM * CREWS + $c) * VALUE_DIM + column] * shares.factors[$c];
    #endfor
    #if SINGLE
    let share = share_of(shares.stats.x, shares.stats.y, place.head + head);
    outcomes[head * VALUE_DIM + column] = select(sum * share, 0.0, share == 0.0);
    #else
    returned |= put(sums_at(place.row + head, split) + column, sum);
    if (column < 2u) { returned |= put(stats_at(place.row + head, split) + column, shares.stats[column]); }
    #endif
  }
  workgroupBarrier();
  return returned;
}

fn query_four(i: u32, place: Place) -> vec4<f32> {
  let head = place.head + min(i / (EIGHTS * 2u), place.count - 1u);
  let c = i % (EIGHTS * 2u) * 4u;
  return vec4<f32>(query_element(place.token, head, c), query_element(place.token, head, c + 1u),
                   query_element(place.token, head, c + 2u), query_element(place.token, head, c + 3u));
}

fn decode(index: u32, thread: u32) {
  let place = place_of(index / splits());
  let split = index % splits();
  // Queries and the position are on their way before the keys, whose places have to be looked up first.
  var queries = array<vec4<f32>, QUERY_LOADS>();
  #for q QUERY_LOADS
  queries[$q] = query_four(min(thread + $q * THREADS, QUERIES - 1u), place);
  #endfor
  // By what the token sees and not by what there is room for: a plan is made once for a text that grows.
  let range = visible(place.token);
  #if IN_ORDER
  // Where a split begins does not depend on the text's length: splits() chunks follow each other, and then the next ones.
  var next = load_batch(first_seen(place.token) + split * KEYS, place, thread);
  #endif
  let chunks_seen = (range.y - range.x + KEYS - 1u) / KEYS;
  #if IN_ORDER
  let used = min(splits(), chunks_seen);
  #else
  let split_chunks = (chunks_seen + splits() - 1u) / splits();
  let used = (chunks_seen + split_chunks - 1u) / split_chunks;
  #endif
  #if ONE_DISPATCH
  if (split >= used) { return; }
  #endif
  #for q QUERY_LOADS
  if (thread + $q * THREADS < QUERIES) { query[thread + $q * THREADS] = queries[$q] * scale(); }
  #endfor
  workgroupBarrier();

  let member = thread % TEAM;
  let first_of_team = thread / TEAM * 4u;
  var tops = array<f32, HEADS>();    // of the team
  var totals = array<f32, HEADS>();  // of one key of four
  var sums = array<Eight, HEADS * VALUE_LOADS>();
  #for h HEADS
  tops[$h] = HIDDEN;
  #endfor
  #if IN_ORDER
  let end = range.y;
  let step = splits() * KEYS;
  {
    for (var first = range.x + split * KEYS; first < end; first += step) {
      let batch = next;
      if (first + step < end) { next = load_batch(first + step, place, thread); }
  #else
  let sequence_key = first_key(place.token);
  let end = min(range.x + (split + 1u) * split_chunks * KEYS, range.y);
  for (var span = range.x + split * split_chunks * KEYS; span < end; span += SPAN) {
    var chunks = find_keys(place.token, sequence_key + span, sequence_key + min(span + SPAN, end), thread);
    while (chunks != 0u) {
      let first = firstTrailingBit(chunks) * KEYS;
      chunks &= chunks - 1u;
      let batch = load_batch(first, place, thread);
  #endif
      var products = array<vec4<f32>, HEADS>();
      #for j LOADS
      {
        let k0 = widen(batch.keys[$j * 4u]);
        let k1 = widen(batch.keys[$j * 4u + 1u]);
        let k2 = widen(batch.keys[$j * 4u + 2u]);
        let k3 = widen(batch.keys[$j * 4u + 3u]);
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
      var weights = array<vec4<f32>, HEADS>();
      var factors = array<f32, HEADS>();
      #for h HEADS
      {
        let product = team_sums(products[$h], thread);
        let s = score(product, place.head + $h, first + first_of_team + member % 4u, place.token, end);
        let highest = max(tops[$h], team_top(s, thread));
        let w = select(exp(s - highest), 0.0, s == HIDDEN);
        factors[$h] = factor_of(tops[$h], highest);
        weights[$h] = team_fours(w, thread);
        totals[$h] = totals[$h] * factors[$h] + w;
        tops[$h] = highest;
      }
      #endfor
      #for j VALUE_LOADS
      {
        var v = array<Eight, 4>();
        #for k 4
        if (is_seen(first + first_of_team + $k, end)) { v[$k] = widen(batch.values[$j * 4u + $k]); }  // else perhaps no number
        #endfor
        #for h HEADS
        {
          let w = weights[$h];
          let sum = sums[$h * VALUE_LOADS + $j];
          sums[$h * VALUE_LOADS + $j] = Eight(
              (sum.low * factors[$h] + w.x * v[0].low) + (w.y * v[1].low + (w.z * v[2].low + w.w * v[3].low)),
              (sum.high * factors[$h] + w.x * v[0].high) + (w.y * v[1].high + (w.z * v[2].high + w.w * v[3].high)));
        }
        #endfor
      }
      #endfor
    }
  }

  #for h HEADS
  {
    let four = team_fours(totals[$h], thread);
    var stats = vec2<f32>(tops[$h], (four.x + four.y) + (four.z + four.w));
    #if SHUFFLES
    for (var i = TEAM; i < CREW; i *= 2u) { stats.x = max(stats.x, subgroupShuffleXor(stats.x, i)); }
    let factor = factor_of(tops[$h], stats.x);
    stats.y *= factor;
    #for j VALUE_LOADS
    sums[$h * VALUE_LOADS + $j].low *= factor;
    sums[$h * VALUE_LOADS + $j].high *= factor;
    #endfor
    for (var i = TEAM; i < CREW; i *= 2u) {
      stats.y += subgroupShuffleXor(stats.y, i);
      #for j VALUE_LOADS
      sums[$h * VALUE_LOADS + $j].low += subgroupShuffleXor(sums[$h * VALUE_LOADS + $j].low, i);
      sums[$h * VALUE_LOADS + $j].high += subgroupShuffleXor(sums[$h * VALUE_LOADS + $j].high, i);
      #endfor
    }
    #endif
    if (thread % CREW == 0u) { crew_stats[$h * CREWS + thread / CREW] = stats; }
  }
  #endfor
  var returned = 0u;  // by every put: always 0, but what follows waits for it
  #for h HEADS
  {
    #for j VALUE_LOADS
    if (thread % CREW < TEAM && $j * TEAM + member < VALUE_EIGHTS) {
      let at = ($h % AT_ONCE * CREWS + thread / CREW) * VALUE_DIM + ($j * TEAM + member) * 8u;
      #for i 4
      columns[at + $i] = sums[$h * VALUE_LOADS + $j].low[$i];
      columns[at + $i + 4u] = sums[$h * VALUE_LOADS + $j].high[$i];
      #endfor
    }
    #endfor
    if (($h + 1u) % AT_ONCE == 0u || $h + 1u == HEADS) {
      returned |= put_sums(place, split, $h / AT_ONCE * AT_ONCE, $h + 1u, thread);
    }
  }
  #endfor
  #if SINGLE
  finish(place, thread);
  #endif
  #if ONE_DISPATCH
  if (arrives_last(index / splits(), used, returned, thread)) { combine(place, used, thread); }
  #endif
}
