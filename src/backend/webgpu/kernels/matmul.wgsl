// c = a b in tiles of 64 x 64, 4 x 4 elements per invocation: rows 4 y + 0..3, columns 2 x + 0..1 and 32 + 2 x + 0..1, so
// that a 16-bit result is written in whole words. Written around this by matmul.cpp: T, load_a, load_b, bases,
// size_m, size_n, size_k, the strides, store, and main with `index` and `thread`.
var<workgroup> tile_a: array<T, 1024>;        // (16 of k, 64 rows)
var<workgroup> tile_b: array<vec2<T>, 512>;   // (16 of k, 32 pairs of columns)

fn fetch(thread: u32, a_base: u32, b_base: u32, row0: u32, column0: u32, k0: u32) {
  for (var q = 0u; q < 4u; q++) {
    let e = thread + q * 256u;
    // Neighbouring invocations read along the dim that is contiguous.
    var row = e / 16u;
    var k = e % 16u;
    if (a_stride_row() == 1u) {
      row = e % 64u;
      k = e / 64u;
    }
    var a = T(0);
    if (row0 + row < size_m() && k0 + k < size_k()) {
      a = load_a(a_base + (row0 + row) * a_stride_row() + (k0 + k) * a_stride_k());
    }
    tile_a[k * 64u + row] = a;
    var column = e % 64u;
    k = e / 64u;
    if (b_stride_k() == 1u) {
      column = e / 16u;
      k = e % 16u;
    }
    var b = T(0);
    if (column0 + column < size_n() && k0 + k < size_k()) {
      b = load_b(b_base + (k0 + k) * b_stride_k() + (column0 + column) * b_stride_column());
    }
    tile_b[k * 32u + column / 2u][column % 2u] = b;
  }
}

fn store_row(base: u32, row: u32, column: u32, v: vec2<T>) {
  if (row < size_m() && column < size_n()) {
    store(base + row * size_n() + column, v, column + 1u < size_n());
  }
}

fn multiply(index: u32, thread: u32) {
  let across = (size_n() + 63u) / 64u;
  let tiles = across * ((size_m() + 63u) / 64u);
  let batch = index / tiles;
  let row0 = (index % tiles) / across * 64u;
  let column0 = (index % tiles) % across * 64u;
  let start = bases(batch);
  let x = thread % 16u;
  let y = thread / 16u;
  var s00 = vec2<T>(); var s01 = vec2<T>();
  var s10 = vec2<T>(); var s11 = vec2<T>();
  var s20 = vec2<T>(); var s21 = vec2<T>();
  var s30 = vec2<T>(); var s31 = vec2<T>();
  for (var k0 = 0u; k0 < size_k(); k0 += 16u) {
    fetch(thread, start.x, start.y, row0, column0, k0);
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
      let b0 = tile_b[k * 32u + x];
      let b1 = tile_b[k * 32u + 16u + x];
      let at = k * 64u + y * 4u;
      let a0 = tile_a[at];
      let a1 = tile_a[at + 1u];
      let a2 = tile_a[at + 2u];
      let a3 = tile_a[at + 3u];
      s00 += a0 * b0; s01 += a0 * b1;
      s10 += a1 * b0; s11 += a1 * b1;
      s20 += a2 * b0; s21 += a2 * b1;
      s30 += a3 * b0; s31 += a3 * b1;
    }
    workgroupBarrier();
  }
  let base = batch * size_m() * size_n();
  let row = row0 + y * 4u;
  let left = column0 + 2u * x;
  store_row(base, row, left, s00); store_row(base, row, left + 32u, s01);
  store_row(base, row + 1u, left, s10); store_row(base, row + 1u, left + 32u, s11);
  store_row(base, row + 2u, left, s20); store_row(base, row + 2u, left + 32u, s21);
  store_row(base, row + 3u, left, s30); store_row(base, row + 3u, left + 32u, s31);
}
