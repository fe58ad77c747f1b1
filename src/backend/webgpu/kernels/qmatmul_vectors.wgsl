// VECTORS rows of x times weights that are read once. LANES invocations share ROWS rows of weights, each takes every
// LANES-th block, AHEAD of them at a time. Written around this by qmatmul.cpp: the constants; X, load_x and dot_x; levels
// and scales of a block; results, row_of_x, weights_of; total, which sums over LANES neighbours; store; main with `index`
// and `thread`. Everything is written out: a loop that is not unrolled has its weights in memory.
fn multiply_vectors(index: u32, thread: u32) {
  const GROUP = THREADS / LANES * ROWS;
  let groups = (size_n() + GROUP - 1u) / GROUP;
  let row = index % groups * GROUP + thread / LANES * ROWS;
  let vector = index / groups * VECTORS;
  let weights = weights_of(vector);
  var sums: array<f32, ROWS * VECTORS>;
  for (var first = thread % LANES; first < blocks(); first += LANES * AHEAD) {
    #for a AHEAD
    {
      let block = first + $a * LANES;
      var w: array<Bytes, ROWS>;
      var s: array<vec4<f32>, ROWS>;
      #for r ROWS
      {
        let at = weights + min(row + $r, size_n() - 1u);
        w[$r] = levels(at, block);
        s[$r] = scales(at, block);
      }
      #endfor
      #for v VECTORS
      {
        let x = load_x(row_of_x(min(vector + $v, results() - 1u)), block);
        #for r ROWS
        sums[$v * ROWS + $r] += dot_x(x, w[$r], s[$r]);
        #endfor
      }
      #endfor
    }
    #endfor
  }
  #for v VECTORS
  #for r ROWS
  sums[$v * ROWS + $r] = total(sums[$v * ROWS + $r], thread);
  #endfor
  #endfor
  if (thread % LANES != 0u) { return; }
  #for v VECTORS
  #for r ROWS
  if (vector + $v < results() && row + $r < size_n()) {
    store((vector + $v) * size_n() + row + $r, sums[$v * ROWS + $r]);
  }
  #endfor
  #endfor
}
