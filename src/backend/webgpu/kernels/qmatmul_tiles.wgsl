// A tile of 64 rows of x and 64 rows of weights, 4 x 4 sums for each of 256 invocations. Weights become floats on their
// way into the workgroup's memory, 16 elements of each row at a time. Written around this by qmatmul.cpp: sixteens(), how
// many times that is; four_of_x and four_of_w; Tile and tile_of; row_of_x and row_of_result of a place in a tile; store.
var<workgroup> x_tile: array<vec4<f32>, 256>;  // (4 groups of 4 elements, 64 rows)
var<workgroup> w_tile: array<vec4<f32>, 256>;

fn multiply_tile(index: u32, thread: u32) {
  let across = (size_n() + 63u) / 64u;
  let tile = tile_of(index / across);
  if (tile.first >= tile.end) { return; }
  let column0 = index % across * 64u;
  let column = thread % 16u;
  let row = thread / 16u;
  let four = thread / 64u;  // of elements, and of a row, which this invocation brings
  let x_row = row_of_x(min(tile.first + thread % 64u, tile.end - 1u));
  let w_row = tile.weights + min(column0 + thread % 64u, size_n() - 1u);
  var sums: array<vec4<f32>, 4>;
  for (var sixteen = 0u; sixteen < sixteens(); sixteen++) {
    w_tile[thread] = four_of_w(w_row, sixteen, four);
    x_tile[thread] = four_of_x(x_row, sixteen * 4u + four);
    workgroupBarrier();
    for (var e = 0u; e < 4u; e++) {
      var w4: array<vec4<f32>, 4>;
      for (var j = 0u; j < 4u; j++) { w4[j] = w_tile[e * 64u + column + 16u * j]; }
      for (var i = 0u; i < 4u; i++) {
        let x = x_tile[e * 64u + row + 16u * i];
        sums[i] += vec4<f32>(dot(x, w4[0]), dot(x, w4[1]), dot(x, w4[2]), dot(x, w4[3]));
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let at = vec2<u32>(tile.first + row + 16u * i, column0 + column + 16u * j);
      if (at.x < tile.end && at.y < size_n()) { store(row_of_result(at.x) * size_n() + at.y, sums[i][j]); }
    }
  }
}
