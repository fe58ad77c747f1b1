// Tiles of halves go through the workgroup's memory into matrices of a subgroup; every subgroup keeps ROWS x COLUMNS
// sums in f32. While a tile is multiplied the next one is on its way into registers.
alias Left = subgroup_matrix_left<f16, MATRIX_K, MATRIX_M>;
alias Right = subgroup_matrix_right<f16, MATRIX_N, MATRIX_K>;
alias Sums = subgroup_matrix_result<f32, MATRIX_N, MATRIX_M>;
// Lines of a, then lines of b; along k or across it, as in memory, and each eight halves longer, so that they start in
// different banks.
const A_LINE = A_LINE_CHUNKS + 1u;
const B_LINE = B_LINE_CHUNKS + 1u;
const B_TILE = A_LINES * A_LINE;
var<workgroup> tiles: array<vec4<u32>, B_TILE + B_LINES * B_LINE>;

#if A_ALONG_K
fn chunk_a(base: u32, row: u32, k: u32, chunk: u32) -> vec4<u32> {
  return eight_a(base, row + chunk / A_LINE_CHUNKS, k + chunk % A_LINE_CHUNKS * 8u);
}
fn left(row: u32, k: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&tiles, row * A_LINE + k / 8u, A_LINE);
}
#else
fn chunk_a(base: u32, row: u32, k: u32, chunk: u32) -> vec4<u32> {
  return eight_a(base, row + chunk % A_LINE_CHUNKS * 8u, k + chunk / A_LINE_CHUNKS);
}
fn left(row: u32, k: u32) -> Left {
  return subgroupMatrixLoad<Left, col_major>(&tiles, k * A_LINE + row / 8u, A_LINE);
}
#endif

#if B_ALONG_K
fn right(column: u32, k: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&tiles, B_TILE + column * B_LINE + k / 8u, B_LINE);
}
#else
fn right(column: u32, k: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&tiles, B_TILE + k * B_LINE + column / 8u, B_LINE);
}
#endif

// What an invocation loads of b at a time, and puts into the tile: eight halves, or a block of 32 weights (qmatmul.wgsl) of
// one of TILE_N rows.
#if PACKED
struct Loaded { codes: Codes, scales: ScaleWords }
fn load_b(base: u32, column: u32, k: u32, i: u32) -> Loaded {
  let row = min(column + i % TILE_N, size_n() - 1u);
  let block = min(k / 32u + i / TILE_N, blocks() - 1u);
  return Loaded(load_codes(row, block), load_scales(row, block));
}
fn eight_of(words: vec2<u32>, s: vec2<f32>) -> vec4<u32> {
  let low = floats_of(words.x) * s.x + vec4<f32>(s.y);
  let high = floats_of(words.y) * s.x + vec4<f32>(s.y);
  return vec4<u32>(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw));
}
fn put_b(loaded: Loaded, k: u32, i: u32) {
  let block = k / 32u + i / TILE_N;
  let at = B_TILE + i % TILE_N * B_LINE + i / TILE_N * 4u;
  let w = levels_of(loaded.codes);
  let s = select(vec4<f32>(), scales_of(loaded.scales, block), block < blocks());
  tiles[at] = eight_of(w.low.xy, s.xy);
  tiles[at + 1u] = eight_of(w.low.zw, s.xy);
  tiles[at + 2u] = eight_of(w.high.xy, s.zw);
  tiles[at + 3u] = eight_of(w.high.zw, s.zw);
}
#else
alias Loaded = vec4<u32>;
fn load_b(base: u32, column: u32, k: u32, i: u32) -> Loaded {
  #if B_ALONG_K
  return eight_b(base, column + i / B_LINE_CHUNKS, k + i % B_LINE_CHUNKS * 8u);
  #else
  return eight_b(base, column + i % B_LINE_CHUNKS * 8u, k + i / B_LINE_CHUNKS);
  #endif
}
fn put_b(loaded: Loaded, k: u32, i: u32) { tiles[B_TILE + i / B_LINE_CHUNKS * B_LINE + i % B_LINE_CHUNKS] = loaded; }
#endif

fn multiply(index: u32, thread: u32) {
  let p = place(index, TILE_M, TILE_N);
  let start = bases(p.batch);
  let subgroup = subgroupBroadcastFirst(thread / LANES);
  let row = subgroup / (TILE_N / COLUMNS) * ROWS;
  let column = subgroup % (TILE_N / COLUMNS) * COLUMNS;

  var sums: array<Sums, DOWN * ACROSS>;
  var next_a: array<vec4<u32>, A_CHUNKS>;
  var next_b: array<Loaded, B_LOADS>;
  #for i A_CHUNKS
  next_a[$i] = chunk_a(start.x, p.row, p.k, thread + $i * THREADS);
  #endfor
  #for i B_LOADS
  next_b[$i] = load_b(start.y, p.column, p.k, thread + $i * THREADS);
  #endfor
  for (var k = p.k; k < p.k_end; k += TILE_K) {
    #for i A_CHUNKS
    {
      let chunk = thread + $i * THREADS;
      tiles[chunk / A_LINE_CHUNKS * A_LINE + chunk % A_LINE_CHUNKS] = next_a[$i];
    }
    #endfor
    #for i B_LOADS
    put_b(next_b[$i], k, thread + $i * THREADS);
    #endfor
    workgroupBarrier();
    if (k + TILE_K < p.k_end) {
      #for i A_CHUNKS
      next_a[$i] = chunk_a(start.x, p.row, k + TILE_K, thread + $i * THREADS);
      #endfor
      #for i B_LOADS
      next_b[$i] = load_b(start.y, p.column, k + TILE_K, thread + $i * THREADS);
      #endfor
    }
    #for q K_STEPS
    {
      var b: array<Right, ACROSS>;
      #for j ACROSS
      b[$j] = right(column + $j * MATRIX_N, $q * MATRIX_K);
      #endfor
      #for i DOWN
      {
        let a = left(row + $i * MATRIX_M, $q * MATRIX_K);
        #for j ACROSS
        sums[$i * ACROSS + $j] = subgroupMatrixMultiplyAccumulate(a, b[$j], sums[$i * ACROSS + $j]);
        #endfor
      }
      #endfor
    }
    #endfor
    workgroupBarrier();
  }

  // Through the workgroup's memory, for only there an element has a place: MATRIX_M rows of a subgroup at a time.
  const LINE = COLUMNS / 4u;
  let corner = subgroup * MATRIX_M * LINE;
  #for i DOWN
  #for j ACROSS
  subgroupMatrixStore<row_major>(&tiles, corner + $j * MATRIX_N / 4u, sums[$i * ACROSS + $j], LINE);
  #endfor
  workgroupBarrier();
  for (var e = thread % LANES; e < MATRIX_M * LINE; e += LANES) {
    store_row(start.z + p.out, p.row + row + $i * MATRIX_M + e / LINE, p.column + column + e % LINE * 4u,
              bitcast<vec4<f32>>(tiles[corner + e]));
  }
  workgroupBarrier();
  #endfor
}
