// Products of tiles, shared by attention forward and backward. WIDE x WIDE invocations (x, y) work on tiles of
// TILE x TILE, TILE = 4 WIDE. Of a product each holds 4 x 4 elements as a matrix m: m[i][j] is row 4 y + i, column x + j WIDE.
// What is done to single elements is done in workgroup memory: in registers the loops would be unrolled sixteen times.
// Written around this by attention.cpp: the constants TILE, WIDE, THREADS, SLICE, CHUNKS, ROWS and TILES,
// and slice_end and rows_end, which are SLICE and ROWS.
const PITCH = WIDE + 1u;         // of rows in workgroup memory: neighbours fall into different banks
const NEXT_TILE = TILE * PITCH;

alias Sums = array<mat4x4<f32>, CHUNKS>;  // 4 rows of a result, columns 4 x + 0..3 of each chunk of TILE

var<workgroup> slice_a: array<vec4<f32>, SLICE * PITCH>;
var<workgroup> slice_b: array<vec4<f32>, SLICE * PITCH>;
var<workgroup> tiles: array<vec4<f32>, TILES * NEXT_TILE>;  // (tile, column, row): factors of accumulate
var<workgroup> place: array<u32, 4u * TILE>;                // (source, row of its tile): where the row starts

// The rows of a source's tile. A barrier has to follow.
fn place_rows(source: u32, head: Head, first: u32, thread: u32) {
  if (thread < TILE) { place[source * TILE + thread] = row_of(source, head, first + thread); }
}

fn element(source: u32, row: u32, column: u32) -> f32 {
  let at = place[source * TILE + row];
  let there = at != NOWHERE && column < columns(source);
  return select(0.0, load(source, select(0u, at, there), select(0u, column, there)), there);
}

fn outer(a: vec4<f32>, b: vec4<f32>) -> mat4x4<f32> { return mat4x4<f32>(a.x * b, a.y * b, a.z * b, a.w * b); }

// tiles[product] = rows of a times rows of b. A barrier has to follow.
fn multiply(product: u32, a: u32, b: u32, thread: u32) {
  let x = thread % WIDE;
  let y = thread / WIDE;
  var sums = mat4x4<f32>();
  for (var column = 0u; column < columns(a); column += SLICE) {
    for (var e = thread; e < TILE * SLICE; e += THREADS) {
      let r = e / SLICE;
      let c = e % SLICE;
      slice_a[c * PITCH + r / 4u][r % 4u] = element(a, r, column + c);
      slice_b[c * PITCH + r % WIDE][r / WIDE] = element(b, r, column + c);
    }
    workgroupBarrier();
    for (var c = 0u; c < slice_end(); c++) { sums += outer(slice_a[c * PITCH + y], slice_b[c * PITCH + x]); }
    workgroupBarrier();
  }
  let across = transpose(sums);
  tiles[product + x * PITCH + y] = across[0];
  tiles[product + (x + WIDE) * PITCH + y] = across[1];
  tiles[product + (x + 2u * WIDE) * PITCH + y] = across[2];
  tiles[product + (x + 3u * WIDE) * PITCH + y] = across[3];
}

// sums += tiles[factor] times the rows of a source, as far as `count` of the tile's columns.
fn accumulate(sums: ptr<function, Sums>, factor: u32, source: u32, count: u32, thread: u32) {
  for (var first = 0u; first < count; first += ROWS) {
    for (var e = thread; e < ROWS * CHUNKS * TILE; e += THREADS) {
      let r = e / (CHUNKS * TILE);
      let c = e % (CHUNKS * TILE);
      slice_b[r * CHUNKS * WIDE + c / 4u][c % 4u] = element(source, first + r, c);
    }
    workgroupBarrier();
    for (var r = 0u; r < rows_end(); r++) {
      let a = tiles[factor + (first + r) * PITCH + thread / WIDE];
      for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        (*sums)[chunk] += outer(a, slice_b[(r * CHUNKS + chunk) * WIDE + thread % WIDE]);
      }
    }
    workgroupBarrier();
  }
}

// Result row i, from `sums`, goes to row place[i] of an output with `width` columns.
fn store_sums(sums: ptr<function, Sums>, output: u32, width: u32, thread: u32) {
  let x = thread % WIDE;
  let y = thread / WIDE;
  for (var chunk = 0u; chunk < CHUNKS; chunk++) {
    let m = (*sums)[chunk];
    workgroupBarrier();
    tiles[4u * y * PITCH + x] = m[0];
    tiles[(4u * y + 1u) * PITCH + x] = m[1];
    tiles[(4u * y + 2u) * PITCH + x] = m[2];
    tiles[(4u * y + 3u) * PITCH + x] = m[3];
    workgroupBarrier();
    for (var e = thread; e < TILE * TILE / 2u; e += THREADS) {
      let r = e / (TILE / 2u);
      let c = e % (TILE / 2u) * 2u;
      let column = chunk * TILE + c;
      if (place[r] != NOWHERE && column < width) {
        let v = tiles[r * PITCH + c / 4u];
        store(output, place[r] * width + column, select(v.xy, v.zw, c % 4u == 2u), column + 1u < width);
      }
    }
  }
}

// Keys that a tile of rows sees, and rows that see a tile of keys: the first and the end.
fn keys_seen(row: u32) -> vec2<u32> {
  let first = max(position_of(row) - back(), 0);
  let end = min(position_of(min(row + TILE, rows()) - 1u) + ahead() + 1, i32(keys()));
  return vec2<u32>(u32(first), u32(max(end, 0)));
}
fn rows_seeing(key: u32) -> vec2<u32> {
  let first = max(i32(key) - ahead(), 0);
  let end = min(i32(min(key + TILE, keys())) + back(), i32(queries()));
  return vec2<u32>(u32(first) * group(), u32(max(end, 0)) * group());
}
