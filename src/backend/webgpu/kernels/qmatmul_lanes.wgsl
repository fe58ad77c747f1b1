// A row of x times interleaved weights (interleaved.wgsl), where invocations are SIMD lanes of a CPU: each takes four rows of
// weights. A load costs every lane some ten instructions a word, so elements of x are loaded once in a subgroup and handed
// around. Written around this by qmatmul.cpp: THREADS, those of a subgroup; x_at(i), elements 4 i to 4 i + 3 of x; size_n;
// row_of_x, weights_of; store; main with `index` and `thread`.
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

fn times(x: vec4<f32>, bytes: vec4<u32>) -> vec4<f32> {
  return (level(bytes, 0u) * x.x + level(bytes, 1u) * x.y) + (level(bytes, 2u) * x.z + level(bytes, 3u) * x.w);
}

fn multiply_vectors(index: u32, thread: u32) {
  let groups = (size_n() + THREADS * 4u - 1u) / (THREADS * 4u);
  let row = (index % groups * THREADS + thread) * 4u;
  let vector = index / groups;
  let here = weights_of(vector) + min(row, (size_n() - 1u) / 4u * 4u);
  var sums = vec4<f32>();
  for (var block = 0u; block < blocks(); block++) {
    let x = load_x((row_of_x(vector) * blocks() + block) * 8u, thread);
    var first: array<vec4<u32>, FIRST>;
    var last: array<vec4<u32>, max(LAST, 1u)>;
    #for w FIRST
    first[$w] = first_word(here, block, $w);
    #endfor
    #if LAST
    #for w LAST
    last[$w] = last_word(here, block, $w);
    #endfor
    #endif
    var parts = array<vec4<f32>, 2>();  // of elements 0 to 15 and of 16 to 31
    #for j 8
    parts[$j / 4u] += times(x.four[$j], code_bytes(first[$j * FIRST / 8u], last[$j * LAST / 8u], $j));
    #endfor
    let s = scales(here, block);
    if (ONE_SCALE) {
      sums += (parts[0] + parts[1]) * s.low;
      if (MINIMUM) { sums += (x.low + x.high) * s.low_minimum; }
    } else {
      sums += parts[0] * s.low + parts[1] * s.high;
      if (MINIMUM) { sums += x.low * s.low_minimum + x.high * s.high_minimum; }
    }
  }
  for (var r = 0u; r < 4u && row + r < size_n(); r++) { store(vector * size_n() + row + r, sums[r]); }
}
