// Up to 8 vectors (the rows of a) times b, which is read once.

// `row` is a row of b as (n, k): four of them for every vector.
fn store_vectors(out: u32, row: u32, sums: array<vec4<T>, VECTORS>) {
  let left = size_n() - row;
#if SIDE_BY_SIDE
  #for i VECTORS
  if ($i * 4u < left * VECTORS) {
    let four = vec4<T>(sums[$i * 4u % VECTORS][$i * 4u / VECTORS], sums[($i * 4u + 1u) % VECTORS][($i * 4u + 1u) / VECTORS],
                       sums[($i * 4u + 2u) % VECTORS][($i * 4u + 2u) / VECTORS],
                       sums[($i * 4u + 3u) % VECTORS][($i * 4u + 3u) / VECTORS]);
    store(out + row * VECTORS + $i * 4u, four, min(4u, left * VECTORS - $i * 4u));
  }
  #endfor
#else
  #for i VECTORS
  store(out + $i * row_stride() + row, sums[$i], min(4u, left));
  #endfor
#endif
}

#if B_ALONG_K
// LANES invocations share four rows of b.
#if SUBGROUP_TOTALS
fn totals(sums: array<vec4<T>, VECTORS>, thread: u32) -> array<vec4<T>, VECTORS> {
  var all = sums;
  #for v VECTORS
  all[$v] = subgroupAdd(all[$v]);
  #endfor
  return all;
}
#else
var<workgroup> partial: array<vec4<T>, THREADS * VECTORS>;
fn totals(sums: array<vec4<T>, VECTORS>, thread: u32) -> array<vec4<T>, VECTORS> {
  #for v VECTORS
  partial[$v * THREADS + thread] = sums[$v];
  #endfor
  for (var step = LANES / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (thread % LANES < step) {
      for (var at = thread; at < THREADS * VECTORS; at += THREADS) { partial[at] += partial[at + step]; }
    }
  }
  var all: array<vec4<T>, VECTORS>;
  #for v VECTORS
  all[$v] = partial[$v * THREADS + thread];
  #endfor
  return all;
}
#endif

fn multiply(index: u32, thread: u32) {
  let groups = (size_n() + TILE_N - 1u) / TILE_N;
  let slice = index / groups / batches();
  let start = bases(index / groups % batches());
  let row = index % groups * TILE_N + thread / LANES * 4u;
  let k_end = min(size_k(), (slice + 1u) * slice_k());
  var sums: array<vec4<T>, VECTORS>;
  for (var k = slice * slice_k() + thread % LANES * 4u; k < k_end; k += LANES * 4u * AT_ONCE) {
    var w: array<vec4<T>, AT_ONCE * 4u>;
    #for u AT_ONCE
    #for i 4
    w[$u * 4u + $i] = four_b(start.y, row + $i, k + $u * LANES * 4u);
    #endfor
    #endfor
    #for u AT_ONCE
    #for v VECTORS
    {
      let x = four_a(start.x, $v, k + $u * LANES * 4u);
      sums[$v] += vec4<T>(dot(x, w[$u * 4u]), dot(x, w[$u * 4u + 1u]), dot(x, w[$u * 4u + 2u]), dot(x, w[$u * 4u + 3u]));
    }
    #endfor
    #endfor
  }
  let all = totals(sums, thread);
  if (thread % LANES == 0u && row < size_n()) { store_vectors(start.z + slice * slice_count(), row, all); }
}

#else
// The columns of b lie side by side: 32 invocations take four each, and the quarters of a workgroup every fourth block
// of k.
var<workgroup> quarters: array<vec4<T>, THREADS * VECTORS>;

fn multiply(index: u32, thread: u32) {
  let groups = (size_n() + TILE_N - 1u) / TILE_N;
  let slice = index / groups / batches();
  let start = bases(index / groups % batches());
  let row = index % groups * TILE_N + thread % 32u * 4u;
  let k_end = min(size_k(), (slice + 1u) * slice_k());
  var sums: array<vec4<T>, VECTORS>;
  for (var k = slice * slice_k() + thread / 32u * 4u; k < k_end; k += 16u * AT_ONCE) {
    var w: array<vec4<T>, AT_ONCE * 4u>;
    #for u AT_ONCE
    #for i 4
    w[$u * 4u + $i] = four_b(start.y, row, k + $u * 16u + $i);
    #endfor
    #endfor
    #for u AT_ONCE
    #for v VECTORS
    {
      let x = four_a(start.x, $v, k + $u * 16u);
      sums[$v] += x.x * w[$u * 4u] + x.y * w[$u * 4u + 1u] + x.z * w[$u * 4u + 2u] + x.w * w[$u * 4u + 3u];
    }
    #endfor
    #endfor
  }
  #for v VECTORS
  quarters[$v * THREADS + thread] = sums[$v];
  #endfor
  workgroupBarrier();
  if (thread >= 32u || row >= size_n()) { return; }
  #for v VECTORS
  sums[$v] += quarters[$v * THREADS + thread + 32u] + quarters[$v * THREADS + thread + 64u] +
              quarters[$v * THREADS + thread + 96u];
  #endfor
  store_vectors(start.z + slice * slice_count(), row, sums);
}
#endif
