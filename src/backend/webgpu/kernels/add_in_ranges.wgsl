// Slices of a source are added to places of an output. 256 invocations, one line each, own the places from `low` on.
// place_of(j), value_of(at, j), old(at), put(at, sum) and T are written by index.cpp.

const EACH = 16u;  // indices that an invocation looks at
const CHUNK = 4096u;

var<workgroup> taken: array<u32, CHUNK>;  // indices of a chunk that lie in the range, in order
var<workgroup> counts: array<u32, 256>;
var<workgroup> sums: array<u32, 16>;  // of 16 counts each

fn add(low: u32, size: u32, places: u32, count: u32, thread: u32, inside: bool, from_line: u32, to_line: u32, stride: u32) {
  let high = min(low + size, places);
  for (var begin = 0u; begin < count; begin += CHUNK) {
    let first = begin + thread * EACH;
    let last = min(first + EACH, count);
    var own = 0u;
    for (var j = first; j < last; j++) {
      let place = place_of(j);
      own += select(0u, 1u, place >= low && place < high);
    }
    counts[thread] = own;
    workgroupBarrier();
    if (thread < 16u) {
      var sum = 0u;
      for (var k = 0u; k < 16u; k++) { sum += counts[thread * 16u + k]; }
      sums[thread] = sum;
    }
    workgroupBarrier();
    var at = 0u;
    var total = 0u;
    for (var k = 0u; k < 16u; k++) {
      if (k == thread / 16u) { at = total; }
      total += sums[k];
    }
    for (var k = thread / 16u * 16u; k < thread; k++) { at += counts[k]; }
    for (var j = first; j < last; j++) {
      let place = place_of(j);
      if (place >= low && place < high) {
        taken[at] = j;
        at++;
      }
    }
    workgroupBarrier();
    if (inside && total > 0u) {
      var to = to_line + place_of(taken[0]) * stride;
      var sum = old(to);
      for (var k = 0u; k < total; k += 4u) {  // four loads before they are needed
        var values: array<T, 4>;
#for i 4
        values[$i] = value_of(from_line, taken[min(k + $i, total - 1u)]);
#endfor
#for i 4
        if (k + $i < total) {
          let next = to_line + place_of(taken[k + $i]) * stride;
          if (next != to) {
            put(to, sum);
            to = next;
            sum = old(to);
          }
          sum += values[$i];
        }
#endfor
      }
      put(to, sum);
    }
    workgroupBarrier();
  }
}
