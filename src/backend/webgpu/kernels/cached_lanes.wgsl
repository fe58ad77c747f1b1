// Attention of a token over a cache where invocations are SIMD lanes of a CPU: a workgroup is a subgroup of LANES, which needs
// no barrier and no memory. It takes HEADS query heads of one key head and all keys, LANES at a time: each lane the score
// of one key, then eights of columns of all their values: number lane, lane + LANES, ... VALUE_SLOTS of them. Queries are
// held in the same way, in SLOTS.
// Written around this by cached_decode.cpp: the constants; sizes; query_element, key_row, key_position, key_sequence,
// position, sequence, slope, sink; store. lanes() is LANES where loops are not to be unrolled: that takes long to compile.
// Times the scale; 0 behind the last one.
fn load_query(token: u32, head: u32, eight: u32) -> Eight {
  var x = array<f32, 8>();
  for (var i = 0u; eight < EIGHTS && i < 8u; i++) { x[i] = query_element(token, head, eight * 8u + i) * scale(); }
  return Eight(vec4<f32>(x[0], x[1], x[2], x[3]), vec4<f32>(x[4], x[5], x[6], x[7]));
}

// The row of a key that is there, or NOWHERE.
fn visible_row(token: u32, key: u32, is_there: bool) -> u32 {
  if (!is_there) { return NOWHERE; }
  let distance = position(token) - key_position(key);
  let in_window = (!CAUSAL || distance >= 0) && (!WINDOW || distance < window());
  return select(NOWHERE, key_row(key), key_sequence(key) == sequence(token) && in_window);
}

fn score(product: f32, token: u32, head: u32, key: u32) -> f32 {
  var s = product;
  #if SOFTCAP
  s = weft_tanh(s / softcap()) * softcap();
  #endif
  #if SLOPES
  s -= f32(position(token) - key_position(key)) * slope(head);
  #endif
  return s;
}

// What the sums are multiplied by in the end. A sink is a score more in the sum of weights.
fn share_of(head: u32, top: f32, total: f32) -> f32 {
  #if SINKS
  let s = sink(min(head, KEY_HEADS * GROUP - 1u));
  let most = max(top, s);
  let factor = weft_exp(top - most);
  return factor / (total * factor + weft_exp(s - most));
  #else
  return select(1.0 / total, 0.0, total == 0.0);
  #endif
}

fn decode(index: u32, lane: u32) {
  let place = place_of(index);
  var queries = array<Eight, HEADS * SLOTS>();
  #for h HEADS
  #for s SLOTS
  queries[$h * SLOTS + $s] = load_query(place.token, place.head + min($h, place.count - 1u), $s * LANES + lane);
  #endfor
  #endfor
  var sums = array<Eight, HEADS * VALUE_SLOTS>();
  var tops = array<f32, HEADS>();    // the same in all lanes
  var totals = array<f32, HEADS>();  // of the lane's keys
  #for h HEADS
  tops[$h] = HIDDEN;
  #endfor
  let range = visible(place.token);
  for (var first = range.x; first < range.y; first += LANES) {
    let key = first_key(place.token) + min(first + lane, range.y - 1u);
    let row = visible_row(place.token, key, first + lane < range.y);
    let hidden = row == NOWHERE;
    let at = select(row, 0u, hidden) * key_pitch() + place.key_head * EIGHTS;
    var weights = array<f32, HEADS>();
    for (var e = 0u; e < lanes(); e++) {
      #for s SLOTS
      {
        let k = widen(load_key(at + min($s * LANES + e, EIGHTS - 1u)));
        #for h HEADS
        weights[$h] += dot(k.low, subgroupShuffle(queries[$h * SLOTS + $s].low, e)) +
                       dot(k.high, subgroupShuffle(queries[$h * SLOTS + $s].high, e));
        #endfor
      }
      #endfor
    }
    #for h HEADS
    {
      let s = select(score(weights[$h], place.token, place.head + $h, key), HIDDEN, hidden);
      let top = max(tops[$h], subgroupMax(s));
      let factor = weft_exp(tops[$h] - top);
      weights[$h] = select(weft_exp(s - top), 0.0, hidden);
      totals[$h] = totals[$h] * factor + weights[$h];
      tops[$h] = top;
      #for v VALUE_SLOTS
      sums[$h * VALUE_SLOTS + $v].low *= factor;
      sums[$h * VALUE_SLOTS + $v].high *= factor;
      #endfor
    }
    #endfor
    for (var k = 0u; k < lanes(); k++) {
      let value_row = subgroupShuffle(row, k);
      #for v VALUE_SLOTS
      {
        let eight = $v * LANES + lane;
        var raw = Raw();
        if (value_row != NOWHERE && eight < VALUE_EIGHTS) {
          raw = load_value(value_row * value_pitch() + place.key_head * VALUE_EIGHTS + eight);
        }
        let x = widen(raw);
        #for h HEADS
        {
          let weight = subgroupShuffle(weights[$h], k);
          sums[$h * VALUE_SLOTS + $v].low += x.low * weight;
          sums[$h * VALUE_SLOTS + $v].high += x.high * weight;
        }
        #endfor
      }
      #endfor
    }
  }
  #for h HEADS
  {
    let share = share_of(place.head + $h, tops[$h], subgroupAdd(totals[$h]));
    #for v VALUE_SLOTS
    if ($h < place.count && $v * LANES + lane < VALUE_EIGHTS) {
      let at = (place.row + $h) * VALUE_DIM + ($v * LANES + lane) * 8u;
      #for i 4
      store(at + $i, sums[$h * VALUE_SLOTS + $v].low[$i] * share);
      store(at + $i + 4u, sums[$h * VALUE_SLOTS + $v].high[$i] * share);
      #endfor
    }
    #endfor
  }
  #endfor
}
