// VECTORS rows of x times packed weights that are read once. Neighbouring invocations have neighbouring rows of weights, which lie side
// by side: THREADS / LANES of them, ROWS each. LANES invocations share a row; each takes its part of the blocks, AHEAD of them at a time,
// and loads the next ones before it multiplies. All invocations of a subgroup need the same x, so a load of it is one access; STAGED: it
// is brought to the workgroup's memory, with fetch_x and stage_x, while the first weights are on their way.
// Written around this by qmatmul.cpp: the constants; Codes, ScaleWords and what they mean (qmatmul.wgsl), of which a batch has UNITS for
// each row, LOOSE: the bits of a block's number that say where in them a batch begins; X, load_x and dot_x; staged, X_VECTORS of
// them; results, row_of_x, weights_of; store; main with `index` and `thread`. Everything is written out: a loop that is not unrolled
// has its weights in memory.
const BESIDE = THREADS / LANES;
const GROUP = BESIDE * ROWS;
#if SHARED
var<workgroup> terms: array<f32, THREADS * ROWS * VECTORS>;
#endif

struct Batch {
  codes: array<Codes, ROWS * AHEAD>,
  scales: array<ScaleWords, ROWS * UNITS>,
}
fn load_batch(rows: array<u32, ROWS>, block: u32) -> Batch {
  var batch: Batch;
  #for r ROWS
  #for a AHEAD
  batch.codes[$r * AHEAD + $a] = load_codes(rows[$r], block + $a);
  #endfor
  #for u UNITS
  batch.scales[$r * UNITS + $u] = load_scales(rows[$r], block + $u * (AHEAD / UNITS));
  #endfor
  #endfor
  return batch;
}

// What a workgroup takes: rows of weights, and those of x.
fn groups_of_rows() -> u32 { return (size_n() + GROUP - 1u) / GROUP; }
fn first_row(index: u32) -> u32 { return index % groups_of_rows() * GROUP; }
fn first_vector(index: u32) -> u32 { return index / groups_of_rows() * VECTORS; }
fn rows_of(index: u32, thread: u32) -> array<u32, ROWS> {
  var rows: array<u32, ROWS>;
  #for r ROWS
  rows[$r] = weights_of(first_vector(index)) + min(first_row(index) + $r * BESIDE + thread % BESIDE, size_n() - 1u);
  #endfor
  return rows;
}
// The first loads of all: a part of x, then weights. A multiprocessor takes loads in their order, and those of the weights
// keep it busy for longer than x needs to arrive.
struct Begun {
  #if STAGED
  x: Fetched,
  #endif
  weights: Batch,
}
fn begin(index: u32, thread: u32) -> Begun {
  var begun: Begun;
  #if STAGED
  begun.x = fetch_x(thread);
  #endif
  begun.weights = load_batch(rows_of(index, thread), thread / BESIDE * (blocks() / LANES));
  return begun;
}

fn multiply_from(index: u32, thread: u32, begun: Begun) {
  let first = first_row(index);
  let vector = first_vector(index);
  let rows = rows_of(index, thread);
  let share = blocks() / LANES;
  let begin = thread / BESIDE * share;
  var next = begun.weights;
  #if STAGED
  stage_x(index, thread, begun.x);
  workgroupBarrier();
  #endif
  var sums: array<f32, ROWS * VECTORS>;
  for (var block = begin; block < begin + share; block += AHEAD) {
    let batch = next;
    if (block + AHEAD < begin + share) { next = load_batch(rows, block + AHEAD); }
    #for a AHEAD
    {
      var w: array<Bytes, ROWS>;
      var s: array<vec4<f32>, ROWS>;
      #for r ROWS
      w[$r] = levels_of(batch.codes[$r * AHEAD + $a]);
      s[$r] = scales_of(batch.scales[$r * UNITS + $a * UNITS / AHEAD], (block & LOOSE) + $a);
      #endfor
      #for v VECTORS
      {
        let x = load_x(row_of_x(min(vector + $v, results() - 1u)), block + $a);
        #for r ROWS
        sums[$v * ROWS + $r] += dot_x(x, w[$r], s[$r]);
        #endfor
      }
      #endfor
    }
    #endfor
  }

  // Place (v, r, thread % BESIDE) of what the group makes has its terms BESIDE apart.
  #if SHARED
  #for v VECTORS
  #for r ROWS
  terms[($v * ROWS + $r) * THREADS + thread] = sums[$v * ROWS + $r];
  #endfor
  #endfor
  workgroupBarrier();
  for (var i = thread; i < VECTORS * GROUP; i += THREADS) {
    var sum = 0.0;
    for (var lane = 0u; lane < LANES; lane++) { sum += terms[i / BESIDE * THREADS + lane * BESIDE + i % BESIDE]; }
    let at = vec2<u32>(vector + i / GROUP, first + i % GROUP);
    if (at.x < results() && at.y < size_n()) { store(at.x * size_n() + at.y, sum); }
  }
  #else
  #for v VECTORS
  #for r ROWS
  if (vector + $v < results() && first + $r * BESIDE + thread < size_n()) {
    store((vector + $v) * size_n() + first + $r * BESIDE + thread, sums[$v * ROWS + $r]);
  }
  #endfor
  #endfor
  #endif
}

fn multiply_vectors(index: u32, thread: u32) { multiply_from(index, thread, begin(index, thread)); }
