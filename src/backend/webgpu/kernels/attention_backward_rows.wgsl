// Gradients of q: over the keys that a tile of rows sees, with the weights computed again.

fn differentiate(index: u32, thread: u32) {
  let blocks = (rows() + TILE - 1u) / TILE;
  let head = head_of(index / blocks);
  let first_row = (blocks - 1u - index % blocks) * TILE;
  let own = thread % TILE;
  let position = position_of(first_row + own);
  let mask_row = mask_row_of(head, first_row + own);
  let stats = stats_of(head, first_row + own);
  place_rows(QUERY, head, first_row, thread);
  place_rows(GRADIENT, head, first_row, thread);

  var sums = Sums();
  let seen = keys_seen(first_row);
  for (var first_key = seen.x; first_key < seen.y; first_key += TILE) {
    place_rows(KEY, head, first_key, thread);
    place_rows(VALUE, head, first_key, thread);
    workgroupBarrier();
    multiply(0u, QUERY, KEY, thread);
    multiply(NEXT_TILE, GRADIENT, VALUE, thread);
    workgroupBarrier();
    for (var k = thread / TILE; k < TILE; k += THREADS / TILE) {
      let at = k * PITCH + own / 4u;
      let s = score(tiles[at][own % 4u], position, mask_row, first_key + k);
      let w = weight(s.x, stats.x) * stats.y;
      tiles[at][own % 4u] = slope_of(s, w, tiles[NEXT_TILE + at][own % 4u], stats.z);
    }
    workgroupBarrier();
    accumulate(&sums, 0u, KEY, min(TILE, seen.y - first_key), thread);
  }
  if (thread < TILE) {
    place[own] = select(NOWHERE, output_row(head, first_row + own), first_row + own < rows());
  }
  store_sums(&sums, QUERY, dim(), thread);
}
