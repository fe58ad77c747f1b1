// Gradients of k and v: over the rows that see a tile of keys, with the weights computed again. Here the rows of a tile are
// keys, and its columns are queries.
var<workgroup> row_stats: array<vec3<f32>, TILE>;
var<workgroup> row_positions: array<i32, TILE>;
var<workgroup> row_masks: array<u32, TILE>;

fn differentiate(index: u32, thread: u32) {
  let blocks = (keys() + TILE - 1u) / TILE;
  let head = head_of(index / blocks);
  let first_key = index % blocks * TILE;
  let own = thread % TILE;
  place_rows(KEY, head, first_key, thread);
  place_rows(VALUE, head, first_key, thread);

  var key_sums = Sums();
  var value_sums = Sums();
  let seeing = rows_seeing(first_key);
  for (var first_row = seeing.x; first_row < seeing.y; first_row += TILE) {
    place_rows(QUERY, head, first_row, thread);
    place_rows(GRADIENT, head, first_row, thread);
    if (thread < TILE) {
      row_stats[thread] = stats_of(head, first_row + thread);
      row_positions[thread] = position_of(first_row + thread);
      row_masks[thread] = mask_row_of(head, first_row + thread);
    }
    workgroupBarrier();
    multiply(0u, KEY, QUERY, thread);
    multiply(NEXT_TILE, VALUE, GRADIENT, thread);
    workgroupBarrier();
    let count = min(TILE, seeing.y - first_row);
    for (var r = thread / TILE; r < TILE; r += THREADS / TILE) {
      let at = r * PITCH + own / 4u;
      let s = score(tiles[at][own % 4u], row_positions[r], row_masks[r], first_key + own);
      let w = select(weight(s.x, row_stats[r].x) * row_stats[r].y, 0.0, r >= count);
      tiles[at][own % 4u] = w;
      tiles[NEXT_TILE + at][own % 4u] = slope_of(s, w, tiles[NEXT_TILE + at][own % 4u], row_stats[r].z);
    }
    workgroupBarrier();
    accumulate(&value_sums, 0u, GRADIENT, count, thread);
    accumulate(&key_sums, NEXT_TILE, QUERY, count, thread);
  }
  if (thread < TILE) {
    place[own] = select(NOWHERE, head.index * keys() + first_key + own, first_key + own < keys());
  }
  store_sums(&key_sums, KEY, dim(), thread);
  store_sums(&value_sums, VALUE, value_dim(), thread);
}
