// c = a b in 64x64 tiles, 4x4 per thread; n is a multiple of 64.
@group(0) @binding(0) var<storage, read> a: array<f32>;         // (n, n)
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;   // (n, n / 4)
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
struct Params { n: u32, }

var<workgroup> tile_a: array<f32, 1024>;        // (64 rows, 16 of k)
var<workgroup> tile_b: array<vec4<f32>, 256>;   // (16 of k, 64 columns)

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) tile: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let row = tile.y * 64u;
  let quad = tile.x * 16u;
  var sum: array<vec4<f32>, 4>;
  for (var k = 0u; k < params.n; k += 16u) {
    for (var i = thread; i < 1024u; i += 256u) { tile_a[i] = a[(row + i / 16u) * params.n + k + i % 16u]; }
    tile_b[thread] = b[(k + thread / 16u) * (params.n / 4u) + quad + thread % 16u];
    workgroupBarrier();
    for (var j = 0u; j < 16u; j++) {
      let right = tile_b[j * 16u + local.x];
      for (var r = 0u; r < 4u; r++) { sum[r] += tile_a[(local.y * 4u + r) * 16u + j] * right; }
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < 4u; r++) { c[(row + local.y * 4u + r) * (params.n / 4u) + quad + local.x] = sum[r]; }
}
