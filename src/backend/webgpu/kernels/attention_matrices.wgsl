// Attention of halves by matrices of subgroups: each of the WARPS subgroups has 16 rows, keeps their queries and sums in
// registers, and sees the keys in tiles of KEYS. Elements of a matrix have no places a shader knows, so scores go through
// workgroup memory: there two lanes share a row, make weights of it and write them back as halves.
// Sums are scaled again only when a row's largest score has risen by more than RISE: until then weights relative to the
// score that was largest before do no harm.
// Constants: WARPS, KEYS (a multiple of 16), KEY_EIGHTS and VALUE_EIGHTS (of a row's columns), KEY_PARTS and VALUE_PARTS
// (matrices along them), KEY_FETCHES and VALUE_FETCHES (of an invocation for a tile), KEY_MATRICES = KEYS / 16.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

const LANES = 32u;
const THREADS = WARPS * LANES;
const RISE = 6.0;
// Lines are 16 bytes longer than what they hold: their starts fall into different banks.
const KEY_LINE = KEY_EIGHTS + 1u;
const VALUE_LINE = VALUE_EIGHTS + 1u;
const VALUE_TILE = KEYS * KEY_LINE;
const SCORE_LINE = KEYS / 4u + 1u;
const WEIGHT_LINE = KEYS / 8u + 1u;

var<workgroup> halves: array<vec4<u32>, max(WARPS * 16u * KEY_LINE, VALUE_TILE + KEYS * VALUE_LINE)>;  // queries, then keys and values
var<workgroup> scores: array<vec4<u32>, WARPS * 16u * SCORE_LINE>;    // f32: (row, key)
var<workgroup> weights: array<vec4<u32>, WARPS * 16u * WEIGHT_LINE>;  // f16: (row, key)
var<workgroup> risen: array<u32, WARPS>;

fn fetch_eight(source: u32, head: Head, first_key: u32, row: u32, eight: u32) -> vec4<u32> {
  if (row >= KEYS || first_key + row >= keys()) { return vec4<u32>(); }
  return load_eight(source, row_of(source, head, first_key + row), eight);
}

// A matrix of this subgroup's 16 rows, to where its lanes can read it.
fn put_sums(sums: Result, corner: u32) { subgroupMatrixStore<row_major>(&scores, corner, sums, SCORE_LINE); }

fn attend(index: u32, thread: u32) {
  let blocks = (rows() + WARPS * 16u - 1u) / (WARPS * 16u);
  let head = head_of(index / blocks);
  let first_row = (blocks - 1u - index % blocks) * WARPS * 16u;  // of causal ones the longest first
  let last_row = min(first_row + WARPS * 16u, rows()) - 1u;
  let warp = subgroupBroadcastFirst(thread / LANES);
  let half = thread % 2u;
  let own = warp * 16u + thread % LANES / 2u;  // this lane's row of the block
  let position = position_of(first_row + own);
  let mask_row = mask_row_of(head, first_row + own);

  for (var e = thread; e < WARPS * 16u * KEY_EIGHTS * 4u; e += THREADS) {
    let r = e / (KEY_EIGHTS * 4u);
    let c = e % (KEY_EIGHTS * 4u);
    var word = 0u;
    if (first_row + r < rows()) { word = pack2x16float(load_pair(QUERY, row_of(QUERY, head, first_row + r), c * 2u)); }
    halves[r * KEY_LINE + c / 4u][c % 4u] = word;
  }
  workgroupBarrier();
  var queries_of: array<Left, KEY_PARTS>;
  #for k KEY_PARTS
  queries_of[$k] = subgroupMatrixLoad<Left, row_major>(&halves, warp * 16u * KEY_LINE + $k * 2u, KEY_LINE);
  #endfor
  var sums: array<Result, VALUE_PARTS>;
  workgroupBarrier();

  let seen_first = u32(max(position_of(first_row) - back(), 0));
  let seen_end = u32(clamp(position_of(last_row) + ahead() + 1, 0, i32(keys())));
  var next_keys: array<vec4<u32>, KEY_FETCHES>;
  var next_values: array<vec4<u32>, VALUE_FETCHES>;
  #for i KEY_FETCHES
  next_keys[$i] = fetch_eight(KEY, head, seen_first, (thread + $i * THREADS) / KEY_EIGHTS, (thread + $i * THREADS) % KEY_EIGHTS);
  #endfor
  #for i VALUE_FETCHES
  next_values[$i] = fetch_eight(VALUE, head, seen_first, (thread + $i * THREADS) / VALUE_EIGHTS, (thread + $i * THREADS) % VALUE_EIGHTS);
  #endfor

  var top = HIDDEN;
  var total = 0.0;  // of this lane's keys
  for (var first_key = seen_first; first_key < seen_end; first_key += KEYS) {
    #for i KEY_FETCHES
    if (thread + $i * THREADS < KEYS * KEY_EIGHTS) {
      halves[(thread + $i * THREADS) / KEY_EIGHTS * KEY_LINE + (thread + $i * THREADS) % KEY_EIGHTS] = next_keys[$i];
    }
    #endfor
    #for i VALUE_FETCHES
    if (thread + $i * THREADS < KEYS * VALUE_EIGHTS) {
      halves[VALUE_TILE + (thread + $i * THREADS) / VALUE_EIGHTS * VALUE_LINE + (thread + $i * THREADS) % VALUE_EIGHTS] = next_values[$i];
    }
    #endfor
    workgroupBarrier();
    let next_key = first_key + KEYS;
    #for i KEY_FETCHES
    next_keys[$i] = fetch_eight(KEY, head, next_key, (thread + $i * THREADS) / KEY_EIGHTS, (thread + $i * THREADS) % KEY_EIGHTS);
    #endfor
    #for i VALUE_FETCHES
    next_values[$i] = fetch_eight(VALUE, head, next_key, (thread + $i * THREADS) / VALUE_EIGHTS, (thread + $i * THREADS) % VALUE_EIGHTS);
    #endfor

    #for j KEY_MATRICES
    {
      var products = Result();
      #for k KEY_PARTS
      products = subgroupMatrixMultiplyAccumulate(
          queries_of[$k], subgroupMatrixLoad<Right, col_major>(&halves, $j * 16u * KEY_LINE + $k * 2u, KEY_LINE), products);
      #endfor
      put_sums(products, warp * 16u * SCORE_LINE + $j * 4u);
    }
    #endfor
    workgroupBarrier();

    // Half a row: KEYS / 2 scores.
    let all_seen = i32(next_key) - 1 <= position_of(first_row) + ahead() && i32(first_key) >= position_of(last_row) - back() &&
                   next_key <= keys() && !MASKED && softcap() == 0.0;
    var s: array<vec4<f32>, SCORE_FOURS>;
    var highest = top;
    #for i SCORE_FOURS
    {
      s[$i] = bitcast<vec4<f32>>(scores[own * SCORE_LINE + half * SCORE_FOURS + $i]);
      if (all_seen) {
        s[$i] *= scale();
      } else {
        let key = first_key + half * (KEYS / 2u) + $i * 4u;
        #for j 4
        s[$i][$j] = score(s[$i][$j], position, mask_row, key + $j).x;
        #endfor
      }
      highest = max(highest, max(max(s[$i].x, s[$i].y), max(s[$i].z, s[$i].w)));
    }
    #endfor
    highest = max(highest, subgroupShuffleXor(highest, 1u));
    let rises = highest > top + RISE;
    let factor = select(1.0, exp(top - highest), rises);
    top = select(top, highest, rises);
    total *= factor;
    #for i SCORE_EIGHTS
    {
      let a = vec4<f32>(weight(s[2u * $i].x, top), weight(s[2u * $i].y, top), weight(s[2u * $i].z, top), weight(s[2u * $i].w, top));
      let b = vec4<f32>(weight(s[2u * $i + 1u].x, top), weight(s[2u * $i + 1u].y, top), weight(s[2u * $i + 1u].z, top), weight(s[2u * $i + 1u].w, top));
      total += ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
      weights[own * WEIGHT_LINE + half * SCORE_EIGHTS + $i] =
          vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
    }
    #endfor
    let any_rises = subgroupAny(rises);
    if (thread % LANES == 0u) { risen[warp] = select(0u, 1u, any_rises && first_key > seen_first); }
    let risen_now = workgroupUniformLoad(&risen);
    var rescale = 0u;
    #for i WARPS
    rescale |= risen_now[$i];
    #endfor
    if (rescale != 0u) {
      #for n VALUE_PARTS
      put_sums(sums[$n], warp * 16u * SCORE_LINE);
      workgroupBarrier();
      #for i 2
      {
        let at = own * SCORE_LINE + half * 2u + $i;
        scores[at] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(scores[at]) * factor);
      }
      #endfor
      workgroupBarrier();
      sums[$n] = subgroupMatrixLoad<Result, row_major>(&scores, warp * 16u * SCORE_LINE, SCORE_LINE);
      workgroupBarrier();
      #endfor
    }

    #for k KEY_MATRICES
    {
      let w = subgroupMatrixLoad<Left, row_major>(&weights, warp * 16u * WEIGHT_LINE + $k * 2u, WEIGHT_LINE);
      #for n VALUE_PARTS
      sums[$n] = subgroupMatrixMultiplyAccumulate(
          w, subgroupMatrixLoad<Right, row_major>(&halves, VALUE_TILE + $k * 16u * VALUE_LINE + $n * 2u, VALUE_LINE), sums[$n]);
      #endfor
    }
    #endfor
    workgroupBarrier();
  }

  total += subgroupShuffleXor(total, 1u);
  let factor = select(1.0 / total, 0.0, total == 0.0);
  let there = first_row + own < rows();
  let to = output_row(head, first_row + own);
  if (there && half == 0u) { store_stats(to, top, factor); }
  #for n VALUE_PARTS
  put_sums(sums[$n], warp * 16u * SCORE_LINE);
  workgroupBarrier();
  if (there) {
    #for i 2
    {
      let v = bitcast<vec4<f32>>(scores[own * SCORE_LINE + half * 2u + $i]) * factor;
      let at = to * value_dim() + $n * 16u + half * 8u + $i * 4u;
      store(OUT, at, v.xy, true);
      store(OUT, at + 2u, v.zw, true);
    }
    #endfor
  }
  workgroupBarrier();
  #endfor
}
