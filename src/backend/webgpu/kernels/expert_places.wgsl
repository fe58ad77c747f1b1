// Sorts the rows of a result by the matrix that they have chosen, and cuts them into tiles of at most 64: for each tile the
// first place, the end and the matrix's first row; then for each place its row. Rows of a matrix come in any order. Written
// around this by experts.cpp: EXPERTS, tiles(), results(), expert(row), matrix_rows(), put.
var<workgroup> counts: array<atomic<u32>, EXPERTS>;  // then the next place of each

fn sort_rows(thread: u32) {
  for (var e = thread; e < EXPERTS; e += 256u) { atomicStore(&counts[e], 0u); }
  workgroupBarrier();
  for (var i = thread; i < results(); i += 256u) { atomicAdd(&counts[expert(i)], 1u); }
  workgroupBarrier();
  if (thread == 0u) {
    var tile = 0u;
    var end = 0u;
    for (var e = 0u; e < EXPERTS; e++) {
      var first = end;
      end += atomicLoad(&counts[e]);
      atomicStore(&counts[e], first);
      for (; first < end; first += 64u) {
        put(3u * tile, first);
        put(3u * tile + 1u, min(first + 64u, end));
        put(3u * tile + 2u, e * matrix_rows());
        tile++;
      }
    }
    for (; tile < tiles(); tile++) {
      put(3u * tile, 0u);
      put(3u * tile + 1u, 0u);
    }
  }
  workgroupBarrier();
  for (var i = thread; i < results(); i += 256u) { put(3u * tiles() + atomicAdd(&counts[expert(i)], 1u), i); }
}
