// The start of every tiled form of matmul. Written around them by declare_product(): T, the sizes and strides, bases,
// result, store; by declare_four() or declare_eight(): four_a, four_b, eight_a, eight_b.

// What a workgroup computes.
struct Place {
  row: u32,
  column: u32,
  batch: u32,
  k: u32,
  k_end: u32,
  out: u32,  // of the slice
}

fn place(index: u32, tile_m: u32, tile_n: u32) -> Place {
  let across = (size_n() + tile_n - 1u) / tile_n;
  let down = (size_m() + tile_m - 1u) / tile_m;
  let tiles = across * down;
  // Bands of eight tiles: while a band passes along b, its part of a stays in the cache.
  let tile = index % tiles;
  let band = tile / (8u * across) * 8u;
  let height = min(down - band, 8u);
  let within = tile % (8u * across);
  let slice = index / tiles / batches();
  var p: Place;
  p.row = (band + within % height) * tile_m;
  p.column = within / height * tile_n;
  p.batch = index / tiles % batches();
  p.k = slice * slice_k();
  p.k_end = min(p.k + slice_k(), size_k());
  p.out = slice * slice_count();
  return p;
}

fn store_row(out: u32, row: u32, column: u32, v: vec4<T>) {
  if (row < size_m() && column < size_n()) {
    store(out + row * row_stride() + column, v, min(4u, size_n() - column));
  }
}
