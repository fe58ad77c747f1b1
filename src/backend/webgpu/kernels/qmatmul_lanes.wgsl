// VECTORS rows of x times interleaved weights (interleaved.wgsl), where invocations are SIMD lanes of a CPU: each takes SETS times
// four rows of weights, whose codes are taken apart once for all rows of x. A load from a buffer costs every lane some ten
// instructions a word, so elements of x are loaded once in a subgroup and handed around. Written around this by qmatmul.cpp:
// THREADS, those of a subgroup; x_at(i), elements 4 i to 4 i + 3 of x; size_n; results, row_of_x, weights_of; store; main with
// `index` and `thread`.
#if SUBGROUPS
const HOLDERS = min(THREADS, 8u);  // lanes that have different elements of a block
#endif

// The 32 elements of a block times BYTE_FACTORS, and the sums of the first and of the last 16.
struct X {
  four: array<vec4<f32>, 8>,
  low: f32,
  high: f32,
}
fn x_sum(four: vec4<f32>) -> f32 { return (four.x + four.y) + (four.z + four.w); }
fn load_x(first: u32, thread: u32) -> X {
  var x: X;
  #if SUBGROUPS
  var own: array<vec4<f32>, 8u / HOLDERS>;
  for (var i = 0u; i < 8u / HOLDERS; i++) { own[i] = x_at(first + i * HOLDERS + thread % HOLDERS); }
  #for j 4
  x.low += subgroupBroadcast(x_sum(own[$j / HOLDERS]), $j % HOLDERS);
  x.high += subgroupBroadcast(x_sum(own[($j + 4u) / HOLDERS]), ($j + 4u) % HOLDERS);
  #endfor
  #for j 8
  x.four[$j] = subgroupBroadcast(own[$j / HOLDERS] * BYTE_FACTORS, $j % HOLDERS);
  #endfor
  #else
  for (var j = 0u; j < 8u; j++) {
    let four = x_at(first + j);
    x.four[j] = four * BYTE_FACTORS;
    if (j < 4u) { x.low += x_sum(four); } else { x.high += x_sum(four); }
  }
  #endif
  return x;
}

// The products of a block with four rows.
fn block_of(x: array<X, VECTORS>, rows: Rows, block: u32) -> array<vec4<f32>, VECTORS> {
  let bytes = code_bytes(load_codes(rows, block));
  var parts = array<vec4<f32>, 2u * VECTORS>();  // of elements 0 to 15 and of 16 to 31
  #for j 8
  {
    let l0 = level(bytes[$j], 0u);
    let l1 = level(bytes[$j], 1u);
    let l2 = level(bytes[$j], 2u);
    let l3 = level(bytes[$j], 3u);
    #for v VECTORS
    parts[$v * 2u + $j / 4u] +=
        (l0 * x[$v].four[$j].x + l1 * x[$v].four[$j].y) + (l2 * x[$v].four[$j].z + l3 * x[$v].four[$j].w);
    #endfor
  }
  #endfor
  let s = scales(rows, block);
  var sums: array<vec4<f32>, VECTORS>;
  #for v VECTORS
  if (ONE_SCALE) {
    sums[$v] = (parts[$v * 2u] + parts[$v * 2u + 1u]) * s.low;
    if (MINIMUM) { sums[$v] += (x[$v].low + x[$v].high) * s.low_minimum; }
  } else {
    sums[$v] = parts[$v * 2u] * s.low + parts[$v * 2u + 1u] * s.high;
    if (MINIMUM) { sums[$v] += x[$v].low * s.low_minimum + x[$v].high * s.high_minimum; }
  }
  #endfor
  return sums;
}

fn multiply_vectors(index: u32, thread: u32) {
  let groups = (size_n() + THREADS * ROWS - 1u) / (THREADS * ROWS);
  let vector = index / groups * VECTORS;
  let row = index % groups * THREADS * ROWS + thread * 4u;  // the next set is THREADS * 4 rows on
  var rows: array<Rows, SETS>;
  var sums: array<vec4<f32>, SETS * VECTORS>;
  #for s SETS
  rows[$s] = rows_of(weights_of(vector) + min(row + $s * THREADS * 4u, (size_n() - 1u) / 4u * 4u));
  #endfor
  for (var block = 0u; block < blocks(); block++) {
    var x: array<X, VECTORS>;
    #for v VECTORS
    x[$v] = load_x((row_of_x(min(vector + $v, results() - 1u)) * blocks() + block) * 8u, thread);
    #endfor
    #for s SETS
    {
      let products = block_of(x, rows[$s], block);
      #for v VECTORS
      sums[$s * VECTORS + $v] += products[$v];
      #endfor
    }
    #endfor
  }
  #for s SETS
  #for v VECTORS
  for (var r = 0u; r < 4u && row + $s * THREADS * 4u + r < size_n() && vector + $v < results(); r++) {
    store((vector + $v) * size_n() + row + $s * THREADS * 4u + r, sums[$s * VECTORS + $v][r]);
  }
  #endfor
  #endfor
}
