// Attention of a tile of rows: over the keys tile by tile, with each row's largest score and sum of weights so far. For the
// softmax an invocation has one row and a PARTS-th of its keys.
const PARTS = THREADS / TILE;

var<workgroup> part_values: array<f32, THREADS>;  // (part, row)
var<workgroup> factors: array<vec4<f32>, WIDE>;   // by row

fn scale_rows(sums: ptr<function, Sums>, thread: u32) {
  let by = factors[thread / WIDE];
  #for k CHUNKS
  #for i 4
  (*sums)[$k][$i] *= by[$i];
  #endfor
  #endfor
}

fn attend(index: u32, thread: u32) {
  let blocks = (rows() + TILE - 1u) / TILE;
  let head = head_of(index / blocks);
  let first_row = (blocks - 1u - index % blocks) * TILE;  // of causal ones the longest first
  let own = thread % TILE;
  let position = position_of(first_row + own);
  let mask_row = mask_row_of(head, first_row + own);
  place_rows(QUERY, head, first_row, thread);

  var top = HIDDEN;
  var total = 0.0;
  var sums = Sums();
  let seen = keys_seen(first_row);
  for (var first_key = seen.x; first_key < seen.y; first_key += TILE) {
    place_rows(KEY, head, first_key, thread);
    place_rows(VALUE, head, first_key, thread);
    workgroupBarrier();
    multiply(0u, QUERY, KEY, thread);
    workgroupBarrier();
    var highest = top;
    for (var k = thread / TILE; k < TILE; k += PARTS) {
      let at = k * PITCH + own / 4u;
      let s = score(tiles[at][own % 4u], position, mask_row, first_key + k).x;
      tiles[at][own % 4u] = s;
      highest = max(highest, s);
    }
    part_values[thread] = highest;
    workgroupBarrier();
    for (var part = 0u; part < PARTS; part++) { highest = max(highest, part_values[part * TILE + own]); }
    let factor = exp(top - highest);
    top = highest;
    total *= factor;
    for (var k = thread / TILE; k < TILE; k += PARTS) {
      let at = k * PITCH + own / 4u;
      let w = weight(tiles[at][own % 4u], top);
      tiles[at][own % 4u] = w;
      total += w;
    }
    if (thread < TILE) { factors[own / 4u][own % 4u] = factor; }
    workgroupBarrier();
    scale_rows(&sums, thread);
    accumulate(&sums, 0u, VALUE, min(TILE, seen.y - first_key), thread);
  }

  part_values[thread] = total;
  workgroupBarrier();
  if (thread < TILE) {
    for (var part = 1u; part < PARTS; part++) { total += part_values[part * TILE + own]; }
    let share = select(1.0 / total, 0.0, total == 0.0);
    factors[own / 4u][own % 4u] = share;
    place[own] = NOWHERE;
    if (first_row + own < rows()) {
      place[own] = output_row(head, first_row + own);
      store_stats(place[own], top, share);
    }
  }
  workgroupBarrier();
  scale_rows(&sums, thread);
  store_sums(&sums, OUT, value_dim(), thread);
}
