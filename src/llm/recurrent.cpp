#include "llm/recurrent.h"

#include <algorithm>

#include "base/error.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

constexpr int64_t kChunk = 64;  // tokens whose steps are solved together

/// The array that has a layer's state `which` of all sequences, made when it is first asked for.
Array& states_of(const Layer& layer, size_t which, int64_t elements) {
  std::vector<Array>& states = layer.cache().states;
  if (states.size() <= which) states.resize(which + 1);
  Array& all = states[which];
  if (!all) {
    all =
        zeros({layer.pass.state().sequences, elements}, {DType::f32, layer.device}) + 0.0;  // its own memory
    eval(all);
  }
  return all;
}

/// Of each sequence of a run the first of its elements in x (n).
Array first_of(const Array& x, const Run& run) {
  return slice_dim(x, 0, run.first, run.first + run.sequences * run.length, run.length);
}

/// (I + a)^-1, a strictly lower triangular (.., n, n): inverses of blocks on the diagonal, twice as large
/// each time.
Array inverse(const Array& a) {
  const int64_t n = a.shape(-1);
  const Array at = iota(n, a), row = unsqueeze(at, 1), column = unsqueeze(at, 0);
  Array result = expand(as(eq(row, column), DType::f32), a.shape());
  for (int64_t size = 1; size < n; size *= 2) {
    const auto block = [&](const Array& x, int64_t of) {
      return floor_divide(x, scalar_like(x, static_cast<double>(of)));
    };
    const Array between = call("logical_and", {eq(block(row, 2 * size), block(column, 2 * size)),
                                               gt(block(row, size), block(column, size))});
    const Array part = where(between, a, scalar_like(a, 0));
    result = result - matmul(matmul(result, part), result);
  }
  return result;
}

/// At most kChunk tokens. With f the sum of `fade` up to a token, the state after token t is
///   exp(f_t) state + sum over i <= t of exp(f_t - f_i) k_i u_i,
/// and the steps u solve u_t + sum over i < t of step_t exp(f_t - f_i) (k_t k_i) u_i
///   = step_t (v_t - exp(f_t) k_t state).
Array chunk(const Array& q, const Array& k, const Array& v, const Array& fade, const Array& step,
            Array& state) {
  const Array f = cumsum(fade, -1), grown = unsqueeze(exp(f), -1);
  const Array later = unsqueeze(f, -1) - unsqueeze(f, -2);  // (.., t, i)
  const Array at = iota(q.shape(-2), q), row = unsqueeze(at, 1), column = unsqueeze(at, 0);
  const Array zero = scalar_like(later, 0);
  const Array faded = where(lt(row, column), zero, exp(minimum(later, zero)));
  const Array keys = transpose(k, -2, -1);

  const Array others = where(gt(row, column), matmul(k, keys) * faded * unsqueeze(step, -1), zero);
  const Array u = matmul(inverse(others), (v - matmul(k, state) * grown) * unsqueeze(step, -1));
  const Array read = matmul(q, state) * grown + matmul(matmul(q, keys) * faded, u);

  const Array last = slice_dim(f, -1, f.shape(-1) - 1, f.shape(-1));  // (.., 1)
  state = state * unsqueeze(exp(last), -1) + matmul(keys, u * unsqueeze(exp(last - f), -1));
  return read;
}

}  // namespace

std::vector<Run> runs_of(const Batch& batch) {
  std::vector<Run> runs;
  for (int64_t first = 0; first < batch.size();) {
    const auto from = batch.sequences.begin() + first;
    const auto end = std::find_if(from, batch.sequences.end(), [&](int32_t s) { return s != *from; });
    const int64_t length = end - from;
    if (!runs.empty() && runs.back().length == length)
      ++runs.back().sequences;
    else
      runs.push_back({first, 1, length});
    first += length;
  }
  return runs;
}

Array part_of(const Array& x, const Run& run) {
  Shape shape = x.shape();
  shape[0] = run.length;
  shape.insert(shape.begin(), run.sequences);
  return reshape(slice_dim(x, 0, run.first, run.first + run.sequences * run.length), shape);
}

Array read_state(const Layer& layer, size_t which, const Run& run, const Shape& shape) {
  const Array& all = states_of(layer, which, element_count(shape));
  const Array rows = index_select(all, first_of(layer.pass.states(layer.device), run), 0);
  const Array position = unsqueeze(first_of(layer.pass.positions(layer.device), run), 1);
  Shape full = shape;
  full.insert(full.begin(), run.sequences);
  return reshape(where(eq(position, scalar_like(position, 0)), scalar_like(rows, 0), rows), full);
}

void write_state(const Layer& layer, size_t which, const Run& run, const Array& value) {
  Array& all = layer.cache().states[which];
  all = call("put_rows", {all, first_of(layer.pass.states(layer.device), run),
                          reshape(value, {run.sequences, all.shape(1)})});
}

Array short_convolution(const Layer& layer, const Array& x, const Array& w) {
  const int64_t channels = w.shape(0), kernel = w.shape(1);
  std::vector<Array> parts;
  for (const Run& run : runs_of(layer.pass.batch())) {
    const Array seen = cat({read_state(layer, 0, run, {kernel - 1, channels}), part_of(x, run)}, 1);
    write_state(layer, 0, run, slice_dim(seen, 1, run.length, run.length + kernel - 1));
    Array y;
    for (int64_t i = 0; i < kernel; ++i) {
      const Array term =
          slice_dim(seen, 1, i, i + run.length) * reshape(slice_dim(w, 1, i, i + 1), {channels});
      y = y ? y + term : term;
    }
    parts.push_back(reshape(y, {run.sequences * run.length, channels}));
  }
  return parts.size() == 1 ? parts[0] : cat(parts, 0);
}

Array gated_delta_rule(const Array& q, const Array& k, const Array& v, const Array& fade, const Array& step,
                       Array& state) {
  const int64_t length = q.shape(2);
  std::vector<Array> parts;
  for (int64_t first = 0; first < length; first += kChunk) {
    const auto part = [&](const Array& x) {
      return slice_dim(x, 2, first, std::min(first + kChunk, length));
    };
    parts.push_back(chunk(part(q), part(k), part(v), part(fade), part(step), state));
  }
  return parts.size() == 1 ? parts[0] : cat(parts, 2);
}

}  // namespace weft::llm
