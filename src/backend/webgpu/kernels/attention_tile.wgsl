// Products of tiles, shared by attention forward and backward. WIDE x WIDE invocations (x, y) work on tiles of
// TILE x TILE, TILE = 4 WIDE. Of a product each holds 4 x 4 elements as a matrix m: m[i][j] is row 4 y + i, column x + j WIDE.
// What is done to single elements is done in workgroup memory: in registers the loops would be unrolled sixteen times.
// Constants: TILE, WIDE, THREADS, SLICE, CHUNKS, ROWS, TILES; FETCHES pairs of elements an invocation brings for a slice.
// Written around this by attention.cpp: slice_end and rows_end, which are SLICE and ROWS.
const PITCH = WIDE + 1u;         // of a tile's columns in workgroup memory: neighbours fall into different banks
const NEXT_TILE = TILE * PITCH;

alias Sums = array<mat4x4<f32>, CHUNKS>;  // 4 rows of a result, columns 4 x + 0..3 of each chunk of TILE
alias Fetched = array<vec2<f32>, FETCHES>;

var<workgroup> slice_a: array<vec4<f32>, SLICE * PITCH>;    // (column, row)
var<workgroup> slice_b: array<vec4<f32>, SLICE * PITCH>;
var<workgroup> tiles: array<vec4<f32>, TILES * NEXT_TILE>;  // (tile, column, row): factors of accumulate
var<workgroup> place: array<u32, 4u * TILE>;                // (source, row of its tile): where the row starts

// The rows of a source's tile. A barrier has to follow.
fn place_rows(source: u32, head: Head, first: u32, thread: u32) {
  if (thread < TILE) { place[source * TILE + thread] = row_of(source, head, first + thread); }
}

fn pair(source: u32, row: u32, column: u32) -> vec2<f32> {
  let at = place[source * TILE + row];
  let there = at != NOWHERE && column < columns(source);
  return select(vec2<f32>(), load_pair(source, select(0u, at, there), select(0u, column, there)), there);
}

// This invocation's part of a slice: columns `column` .. of the rows of a tile.
fn fetch(source: u32, column: u32, thread: u32) -> Fetched {
  var fetched: Fetched;
  #for i FETCHES
  {
    let e = thread + $i * THREADS;
    fetched[$i] = pair(source, e / (SLICE / 2u), column + e % (SLICE / 2u) * 2u);
  }
  #endfor
  return fetched;
}

// tiles[product] = rows of a times rows of b. A barrier has to follow.
fn multiply(product: u32, a: u32, b: u32, thread: u32) {
  let x = thread % WIDE;
  let y = thread / WIDE;
  var sums = mat4x4<f32>();
  var next_a = fetch(a, 0u, thread);
  var next_b = fetch(b, 0u, thread);
  for (var column = 0u; column < columns(a); column += SLICE) {
    #for i FETCHES
    {
      let r = (thread + $i * THREADS) / (SLICE / 2u);
      let at = (thread + $i * THREADS) % (SLICE / 2u) * 2u * PITCH;
      slice_a[at + r / 4u][r % 4u] = next_a[$i].x;
      slice_a[at + PITCH + r / 4u][r % 4u] = next_a[$i].y;
      slice_b[at + r % WIDE][r / WIDE] = next_b[$i].x;
      slice_b[at + PITCH + r % WIDE][r / WIDE] = next_b[$i].y;
    }
    #endfor
    workgroupBarrier();
    if (column + SLICE < columns(a)) {  // on its way while this slice is multiplied
      next_a = fetch(a, column + SLICE, thread);
      next_b = fetch(b, column + SLICE, thread);
    }
    for (var c = 0u; c < slice_end(); c++) {
      let of_a = slice_a[c * PITCH + y];
      let of_b = slice_b[c * PITCH + x];
      #for i 4
      sums[$i] += of_a[$i] * of_b;
      #endfor
    }
    workgroupBarrier();
  }
  let columns_of = transpose(sums);
  #for j 4
  tiles[product + (x + $j * WIDE) * PITCH + y] = columns_of[$j];
  #endfor
}

// This invocation's part of ROWS whole rows of a tile.
fn fetch_rows(source: u32, first: u32, thread: u32) -> Fetched {
  var fetched: Fetched;
  #for i FETCHES
  {
    let e = thread + $i * THREADS;
    fetched[$i] = pair(source, min(first + e / (CHUNKS * TILE / 2u), TILE - 1u), e % (CHUNKS * TILE / 2u) * 2u);
  }
  #endfor
  return fetched;
}

// sums += tiles[factor] times the rows of a source, as far as `count` of the tile's columns.
fn accumulate(sums: ptr<function, Sums>, factor: u32, source: u32, count: u32, thread: u32) {
  var next = fetch_rows(source, 0u, thread);
  for (var first = 0u; first < count; first += ROWS) {
    #for i FETCHES
    {
      let e = thread + $i * THREADS;
      slice_b[e / 2u][e % 2u * 2u] = next[$i].x;
      slice_b[e / 2u][e % 2u * 2u + 1u] = next[$i].y;
    }
    #endfor
    workgroupBarrier();
    if (first + ROWS < count) { next = fetch_rows(source, first + ROWS, thread); }
    for (var r = 0u; r < rows_end(); r++) {
      let a = tiles[factor + (first + r) * PITCH + thread / WIDE];
      #for k CHUNKS
      {
        let b = slice_b[(r * CHUNKS + $k) * WIDE + thread % WIDE];
        #for i 4
        (*sums)[$k][$i] += a[$i] * b;
        #endfor
      }
      #endfor
    }
    workgroupBarrier();
  }
}

fn store_tile(output: u32, first_column: u32, width: u32, thread: u32) {
  for (var e = thread; e < TILE * TILE / 2u; e += THREADS) {
    let r = e / (TILE / 2u);
    let c = e % (TILE / 2u) * 2u;
    let column = first_column + c;
    if (place[r] != NOWHERE && column < width) {
      let v = tiles[r * PITCH + c / 4u];
      store(output, place[r] * width + column, select(v.xy, v.zw, c % 4u == 2u), column + 1u < width);
    }
  }
}

// Result row i, from `sums`, goes to row place[i] of an output with `width` columns.
fn store_sums(sums: ptr<function, Sums>, output: u32, width: u32, thread: u32) {
  let x = thread % WIDE;
  let y = thread / WIDE;
  #for k CHUNKS
  workgroupBarrier();
  #for i 4
  tiles[(4u * y + $i) * PITCH + x] = (*sums)[$k][$i];
  #endfor
  workgroupBarrier();
  store_tile(output, $k * TILE, width, thread);
  #endfor
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
