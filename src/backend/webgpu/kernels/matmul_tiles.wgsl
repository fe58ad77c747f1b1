// Tiles of both factors go through the workgroup's memory; every invocation keeps ROWS x COLUMNS sums. While a tile is
// multiplied the next one is on its way into registers.
const A_LINE = TILE_M / 4u + 1u;  // four elements more, so that rows written along k fall into different banks
const B_LINE = TILE_N / 4u + 1u;
var<workgroup> tile_a: array<vec4<T>, TILE_K * A_LINE>;  // (k, rows)
var<workgroup> tile_b: array<vec4<T>, TILE_K * B_LINE>;  // (k, columns)

#if A_ALONG_K
fn chunk_a(base: u32, row: u32, k: u32, chunk: u32) -> vec4<T> {
  return four_a(base, row + chunk / (TILE_K / 4u), k + chunk % (TILE_K / 4u) * 4u);
}
fn put_a(chunk: u32, v: vec4<T>) {
  let row = chunk / (TILE_K / 4u);
  let line = chunk % (TILE_K / 4u) * 4u * A_LINE + row / 4u;
  #for i 4
  tile_a[line + $i * A_LINE][row % 4u] = v[$i];
  #endfor
}
#else
fn chunk_a(base: u32, row: u32, k: u32, chunk: u32) -> vec4<T> {
  return four_a(base, row + chunk % (TILE_M / 4u) * 4u, k + chunk / (TILE_M / 4u));
}
fn put_a(chunk: u32, v: vec4<T>) { tile_a[chunk / (TILE_M / 4u) * A_LINE + chunk % (TILE_M / 4u)] = v; }
#endif

#if B_ALONG_K
fn chunk_b(base: u32, column: u32, k: u32, chunk: u32) -> vec4<T> {
  return four_b(base, column + chunk / (TILE_K / 4u), k + chunk % (TILE_K / 4u) * 4u);
}
fn put_b(chunk: u32, v: vec4<T>) {
  let column = chunk / (TILE_K / 4u);
  let line = chunk % (TILE_K / 4u) * 4u * B_LINE + column / 4u;
  #for i 4
  tile_b[line + $i * B_LINE][column % 4u] = v[$i];
  #endfor
}
#else
fn chunk_b(base: u32, column: u32, k: u32, chunk: u32) -> vec4<T> {
  return four_b(base, column + chunk % (TILE_N / 4u) * 4u, k + chunk / (TILE_N / 4u));
}
fn put_b(chunk: u32, v: vec4<T>) { tile_b[chunk / (TILE_N / 4u) * B_LINE + chunk % (TILE_N / 4u)] = v; }
#endif

fn multiply(index: u32, thread: u32) {
  let p = place(index, TILE_M, TILE_N);
  let start = bases(p.batch);
  // 32 neighbours stand 8 across and 4 down: what they read of a line of either tile is one wide access.
  let across = TILE_N / COLUMNS;
  let x = thread % 8u + thread / 32u % (across / 8u) * 8u;
  let y = thread % 32u / 8u + thread / 32u / (across / 8u) * 4u;

  var sums: array<vec4<T>, ROWS * COLUMNS / 4u>;
  var next_a: array<vec4<T>, A_CHUNKS>;
  var next_b: array<vec4<T>, B_CHUNKS>;
  #for i A_CHUNKS
  next_a[$i] = chunk_a(start.x, p.row, p.k, thread + $i * THREADS);
  #endfor
  #for i B_CHUNKS
  next_b[$i] = chunk_b(start.y, p.column, p.k, thread + $i * THREADS);
  #endfor
  for (var k = p.k; k < p.k_end; k += TILE_K) {
    #for i A_CHUNKS
    put_a(thread + $i * THREADS, next_a[$i]);
    #endfor
    #for i B_CHUNKS
    put_b(thread + $i * THREADS, next_b[$i]);
    #endfor
    workgroupBarrier();
    if (k + TILE_K < p.k_end) {
      #for i A_CHUNKS
      next_a[$i] = chunk_a(start.x, p.row, k + TILE_K, thread + $i * THREADS);
      #endfor
      #for i B_CHUNKS
      next_b[$i] = chunk_b(start.y, p.column, k + TILE_K, thread + $i * THREADS);
      #endfor
    }
    for (var q = 0u; q < TILE_K; q++) {
      var a: array<vec4<T>, ROW_FOURS>;
      var b: array<vec4<T>, COLUMN_FOURS>;
      #for i ROW_FOURS
      a[$i] = tile_a[q * A_LINE + $i * (TILE_M / ROWS) + y];
      #endfor
      #for j COLUMN_FOURS
      b[$j] = tile_b[q * B_LINE + $j * across + x];
      #endfor
      #for i ROWS
      #for j COLUMN_FOURS
      sums[$i * COLUMN_FOURS + $j] += a[$i / 4u][$i % 4u] * b[$j];
      #endfor
      #endfor
    }
    workgroupBarrier();
  }

  let row = p.row + y * 4u;
  let column = p.column + x * 4u;
  #for i ROWS
  #for j COLUMN_FOURS
  store_row(start.z + p.out, row + $i / 4u * (TILE_M / ROWS) * 4u + $i % 4u, column + $j * across * 4u,
            sums[$i * COLUMN_FOURS + $j]);
  #endfor
  #endfor
}
