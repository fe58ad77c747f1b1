// x in the workgroup's memory, for qmatmul_rows.wgsl. EARLY vectors of it are loaded into registers before the weights.
struct Fetched { x: array<vec4<u32>, EARLY> }
fn fetch_x(thread: u32) -> Fetched {
  var fetched: Fetched;
  #for k EARLY
  fetched.x[$k] = x_vector(min(thread + $k * THREADS, X_VECTORS - 1u));
  #endfor
  return fetched;
}
fn stage_x(index: u32, thread: u32, fetched: Fetched) {
  #for k EARLY
  if (thread + $k * THREADS < X_VECTORS) { staged[thread + $k * THREADS] = fetched.x[$k]; }
  #endfor
  for (var i = thread + EARLY * THREADS; i < X_VECTORS; i += THREADS) { staged[i] = x_vector(i); }
}
