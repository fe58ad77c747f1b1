// A tile of 64 rows of x and 128 rows of weights, 4 x 8 sums for each of 256 invocations, block by block through the
// workgroup's memory. Written around this by qmatmul.cpp: as for qmatmul_vectors.wgsl, and for places as in
// qmatmul_tiles.wgsl.
var<workgroup> x_low: array<vec4<u32>, 64>;
var<workgroup> x_high: array<vec4<u32>, 64>;
var<workgroup> x_low_rest: array<vec4<u32>, 64>;
var<workgroup> x_high_rest: array<vec4<u32>, 64>;
var<workgroup> x_facts: array<vec4<f32>, 64>;
var<workgroup> w_low: array<vec4<u32>, 128>;
var<workgroup> w_high: array<vec4<u32>, 128>;
var<workgroup> w_scales: array<vec4<f32>, 128>;

fn multiply_tile(index: u32, thread: u32) {
  let across = (size_n() + 127u) / 128u;
  let tile = tile_of(index / across);
  if (tile.first >= tile.end) { return; }
  let column0 = index % across * 128u;
  let column = thread % 16u;
  let row = thread / 16u;
  var sums: array<f32, 32>;
  for (var block = 0u; block < blocks(); block++) {
    if (thread < 128u) {
      let at = tile.weights + min(column0 + thread, size_n() - 1u);
      let w = levels(at, block);
      w_low[thread] = w.low;
      w_high[thread] = w.high;
      w_scales[thread] = scales(at, block);
    } else if (thread < 192u) {
      let x = load_x(row_of_x(min(tile.first + thread - 128u, tile.end - 1u)), block);
      x_low[thread - 128u] = x.low;
      x_high[thread - 128u] = x.high;
      x_low_rest[thread - 128u] = x.low_rest;
      x_high_rest[thread - 128u] = x.high_rest;
      x_facts[thread - 128u] = x.facts;
    }
    workgroupBarrier();
    var x: array<X, 4>;
    for (var i = 0u; i < 4u; i++) {
      let at = row + 16u * i;
      x[i] = X(x_low[at], x_high[at], x_low_rest[at], x_high_rest[at], x_facts[at]);
    }
    for (var j = 0u; j < 8u; j++) {
      let at = column + 16u * j;
      let w = Bytes(w_low[at], w_high[at]);
      let s = w_scales[at];
      for (var i = 0u; i < 4u; i++) { sums[j * 4u + i] += dot_x(x[i], w, s); }
    }
    workgroupBarrier();
  }
  for (var j = 0u; j < 8u; j++) {
    for (var i = 0u; i < 4u; i++) {
      let at = vec2<u32>(tile.first + row + 16u * i, column0 + column + 16u * j);
      if (at.x < tile.end && at.y < size_n()) { store(row_of_result(at.x) * size_n() + at.y, sums[j * 4u + i]); }
    }
  }
}
