// sums[row] = sum of x[row, :]; one workgroup per row, a tree in shared memory.
@group(0) @binding(0) var<storage, read> x: array<f32>;  // (rows, columns)
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;
struct Params { columns: u32, }

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  var total = 0.0;
  for (var column = thread; column < params.columns; column += 256u) { total += x[row.x * params.columns + column]; }
  partial[thread] = total;
  for (var half = 128u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (thread < half) { partial[thread] += partial[thread + half]; }
  }
  if (thread == 0u) { sums[row.x] = partial[0]; }
}
