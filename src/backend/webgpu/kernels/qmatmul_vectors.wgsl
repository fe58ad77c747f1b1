// VECTORS rows of x times weights that are read once. LANES invocations share ROWS rows of weights, each takes every
// LANES-th block. Written around this by qmatmul.cpp: the constants; X, load_x and dot_x; levels and scales of a block;
// results, row_of_x, weights_of; total, which sums over LANES neighbours; store; main with `index` and `thread`.
fn multiply_vectors(index: u32, thread: u32) {
  const GROUP = THREADS / LANES * ROWS;
  let groups = (size_n() + GROUP - 1u) / GROUP;
  let row = index % groups * GROUP + thread / LANES * ROWS;
  let vector = index / groups * VECTORS;
  let weights = weights_of(vector);
  var sums: array<f32, ROWS * VECTORS>;
  for (var block = thread % LANES; block < blocks(); block += LANES) {
    var w: array<Bytes, ROWS>;
    var s: array<vec4<f32>, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
      let at = weights + min(row + r, size_n() - 1u);
      w[r] = levels(at, block);
      s[r] = scales(at, block);
    }
    for (var v = 0u; v < VECTORS; v++) {
      let x = load_x(row_of_x(min(vector + v, results() - 1u)), block);
      for (var r = 0u; r < ROWS; r++) { sums[v * ROWS + r] += dot_x(x, w[r], s[r]); }
    }
  }
  for (var i = 0u; i < ROWS * VECTORS; i++) { sums[i] = total(sums[i], thread); }
  if (thread % LANES != 0u) { return; }
  for (var v = 0u; v < VECTORS && vector + v < results(); v++) {
    for (var r = 0u; r < ROWS && row + r < size_n(); r++) {
      store((vector + v) * size_n() + row + r, sums[v * ROWS + r]);
    }
  }
}
