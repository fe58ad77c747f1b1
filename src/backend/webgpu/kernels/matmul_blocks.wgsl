// Every invocation multiplies a block of its own, 4 x 4 elements, straight from the factors: no barriers.
fn transposed(v: array<vec4<T>, 4>) -> array<vec4<T>, 4> {
  return array<vec4<T>, 4>(vec4<T>(v[0].x, v[1].x, v[2].x, v[3].x), vec4<T>(v[0].y, v[1].y, v[2].y, v[3].y),
                           vec4<T>(v[0].z, v[1].z, v[2].z, v[3].z), vec4<T>(v[0].w, v[1].w, v[2].w, v[3].w));
}

// Four rows, each with k .. k + 3.
fn block_a(base: u32, row: u32, k: u32) -> array<vec4<T>, 4> {
  if (A_ALONG_K) {
    return array<vec4<T>, 4>(four_a(base, row, k), four_a(base, row + 1u, k), four_a(base, row + 2u, k),
                             four_a(base, row + 3u, k));
  }
  return transposed(array<vec4<T>, 4>(four_a(base, row, k), four_a(base, row, k + 1u), four_a(base, row, k + 2u),
                                      four_a(base, row, k + 3u)));
}

fn block_b(base: u32, column: u32, k: u32) -> array<vec4<T>, 4> {
  if (B_ALONG_K) {
    return array<vec4<T>, 4>(four_b(base, column, k), four_b(base, column + 1u, k), four_b(base, column + 2u, k),
                             four_b(base, column + 3u, k));
  }
  return transposed(array<vec4<T>, 4>(four_b(base, column, k), four_b(base, column, k + 1u),
                                      four_b(base, column, k + 2u), four_b(base, column, k + 3u)));
}

fn multiply(index: u32, thread: u32) {
  let p = place(index, TILE_M, TILE_N);
  let start = bases(p.batch);
  let row = p.row + thread / 8u * 4u;
  let column = p.column + thread % 8u * 4u;
  var s0 = vec4<T>();
  var s1 = vec4<T>();
  var s2 = vec4<T>();
  var s3 = vec4<T>();
  for (var k = p.k; k < p.k_end; k += 4u) {
    let a = block_a(start.x, row, k);
    let b = block_b(start.y, column, k);
    s0 += vec4<T>(dot(a[0], b[0]), dot(a[0], b[1]), dot(a[0], b[2]), dot(a[0], b[3]));
    s1 += vec4<T>(dot(a[1], b[0]), dot(a[1], b[1]), dot(a[1], b[2]), dot(a[1], b[3]));
    s2 += vec4<T>(dot(a[2], b[0]), dot(a[2], b[1]), dot(a[2], b[2]), dot(a[2], b[3]));
    s3 += vec4<T>(dot(a[3], b[0]), dot(a[3], b[1]), dot(a[3], b[2]), dot(a[3], b[3]));
  }
  let out = start.z + p.out;
  store_row(out, row, column, s0);
  store_row(out, row + 1u, column, s1);
  store_row(out, row + 2u, column, s2);
  store_row(out, row + 3u, column, s3);
}
