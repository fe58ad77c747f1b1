// Attention and rotary position encoding. Everything is computed in f32 and rounded to the input's dtype
// once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/attention.h"
#include "base/error.h"
#include "ops/shorthand.h"
#include "quant/quant.h"
#include "weft/grad.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Array f32(const Array& x) {
  return as(x, DType::f32);
}
Array both(const Array& a, const Array& b) {
  return a ? call("logical_and", {a, b}) : b;
}

/// `shape` with its last `drop` dims replaced.
Shape with_tail(Shape shape, size_t drop, const Ints& tail) {
  shape.resize(shape.size() - drop);
  shape.insert(shape.end(), tail.begin(), tail.end());
  return shape;
}

// ---- Attention, in other ops. -------------------------------------------------------------------
// q (.., h, t, d), k (.., hk, s, d), v (.., hk, s, dv); each key head serves h / hk query heads. The kernels
// `attention` and `attention_backward` do the same without (.., h, t, s) in memory.

/// Which keys each query may see by position (t, s), or an empty Array: all.
Array visible_by_position(const OpCall& c, int64_t t, int64_t s) {
  const Array row = unsqueeze(iota(t, c.inputs[0]), 1), column = unsqueeze(iota(s, c.inputs[0]), 0);
  Array visible;
  if (c.attrs.flag("causal")) visible = call("le", {column, row});
  if (c.attrs.has("window"))
    visible = both(visible,
                   lt(abs(row - column), scalar_like(row, static_cast<double>(c.attrs.integer("window")))));
  return visible;
}

/// x (.., h, t, n) times y (.., hk, n, m): query heads that share a key head are rows of one product.
Array grouped_matmul(const Array& x, const Array& y) {
  const int64_t heads = x.shape(-3), key_heads = y.shape(-3), t = x.shape(-2);
  if (heads == key_heads) return matmul(x, y);
  const Array rows = reshape(x, with_tail(x.shape(), 3, {key_heads, heads / key_heads * t, x.shape(-1)}));
  return reshape(matmul(rows, y), with_tail(x.shape(), 3, {heads, t, y.shape(-1)}));
}

/// q k^T scale, capped and masked, (.., h, t, s); -inf where a key is hidden.
Array masked_scores(const OpCall& c, const Array& q, const Array& k, const Array& mask) {
  Array scores = grouped_matmul(f32(q) * c.attrs.number("scale"), transpose(f32(k), -2, -1));
  if (c.attrs.has("softcap")) {
    const double cap = c.attrs.number("softcap");
    scores = call("tanh", {scores / cap}) * cap;
  }
  Array visible = visible_by_position(c, q.shape(-2), k.shape(-2));
  if (mask && mask.dtype() == DType::boolean)
    visible = both(visible, mask);
  else if (mask)
    scores = scores + f32(mask);
  return visible ? where(visible, scores, scalar_like(scores, -kInfinity)) : scores;
}

Array input_or_none(const OpCall& c, size_t i) {
  return i < c.inputs.size() ? c.inputs[i] : Array();
}

/// q's, unless the call says f32.
DType dtype_of_out(const OpCall& c) {
  return c.attrs.has("dtype") ? dtype_from_name(c.attrs.text("dtype")) : c.inputs[0].dtype();
}

/// -inf becomes 0: a row with nothing visible has no largest score, and shall be 0, not NaN.
Array finite(const Array& x) {
  return where(eq(x, scalar_like(x, -kInfinity)), scalar_like(x, 0), x);
}

/// out (.., h, t, dv) and stats (.., h, t, 2): of each row the largest score as a whole number, whose slope
/// is 0, and 1 / the sum of exp(score - this number); both 0 where nothing is visible. One number, the
/// logarithm of the sum of exp(score), would lose the sum where scores are large.
std::vector<Array> compose_attention(const OpCall& c) {
  const Array &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  if (k.shape(-2) == 0) {
    const auto zeros = [&](DType dtype, int64_t columns) {
      return expand(as(scalar_like(q, 0), dtype), with_tail(q.shape(), 1, {columns}));
    };
    return {zeros(dtype_of_out(c), v.shape(-1)), zeros(DType::f32, 2)};
  }
  const Array scores = masked_scores(c, q, k, input_or_none(c, 3));
  const Array top = call("round", {stop_gradient(finite(max(scores, {-1}, true)))});
  const Array e = exp(scores - top), total = sum(e, {-1}, true);
  const Array empty = eq(total, scalar_like(total, 0)), divisor = where(empty, scalar_like(total, 1), total);
  const Array share = where(empty, scalar_like(total, 0), 1.0 / divisor);
  return {as(grouped_matmul(e, f32(v)) / divisor, dtype_of_out(c)), cat({top, share}, -1)};
}

Array top_of(const Array& stats) {
  return slice_dim(stats, -1, 0, 1);
}
Array share_of(const Array& stats) {
  return slice_dim(stats, -1, 1, 2);
}

Array fresh(const Array& x) {
  return x ? call("alias", {x}) : x;
}

/// From q, k, v, the gradient of out, stats, delta (.., h, t) and the mask: the gradients of q, k, v and of a
/// mask of floats. delta is sum(out * its gradient) and what the gradient of stats adds to it.
std::vector<Array> attention_gradients(const OpCall& c) {
  // Of their own: inputs may depend on each other, and here each one is varied alone.
  const Array q = fresh(c.inputs[0]), k = fresh(c.inputs[1]), v = fresh(c.inputs[2]),
              mask = fresh(input_or_none(c, 6));
  const Array scores = masked_scores(c, q, k, mask);
  const Array &stats = c.inputs[4], weights = exp(scores - top_of(stats)) * share_of(stats),
              weights_here = fresh(weights);
  const std::vector<Array> of_product =
      vjp({grouped_matmul(weights_here, f32(v))}, {f32(c.inputs[3])}, {weights_here, v});
  const Array of_scores = weights * (of_product[0] - unsqueeze(c.inputs[5], -1));
  std::vector<Array> targets = {q, k};
  if (mask && is_float(mask.dtype())) targets.push_back(mask);
  std::vector<Array> result = vjp({scores}, {of_scores}, targets);
  result.insert(result.begin() + 2, of_product[1]);
  return result;
}

std::vector<Array> compose_attention_backward(const OpCall& c) {
  std::vector<Array> result = attention_gradients(c);
  result.resize(3);
  return result;
}

// ---- Attention by kernels. ----------------------------------------------------------------------

void check_mask(const OpCall& c, const Array& mask, const Shape& scores) {
  if (!mask) return;
  if (mask.dtype() != DType::boolean && !is_float(mask.dtype()))
    fail(ErrorKind::invalid, "[{}] the mask is {}, not bool or a float", c.op.name, name_of(mask.dtype()));
  if (broadcast_shapes(c.op.name, mask.shape(), scores) != scores)
    fail(ErrorKind::invalid, "[{}] the mask {} does not fit the scores {}", c.op.name,
         to_string(mask.shape()), to_string(scores));
}

/// Whether there are kernels for it; else it is composed.
bool has_kernel(const Array& q, const Array& k, const Array& v) {
  return is_float(q.dtype()) && is_float(k.dtype()) && is_float(v.dtype()) && q.size() > 0 && k.size() > 0 &&
         v.size() > 0 && q.shape(-1) <= AttentionProblem::kMaxDim && v.shape(-1) <= AttentionProblem::kMaxDim;
}

void check_attention(const OpCall& c, const Array& mask) {
  const Array &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2];
  const size_t rank = q.ndim();
  const bool fits = rank >= 3 && k.ndim() == rank && v.ndim() == rank && has_kernel(q, k, v) &&
                    std::equal(q.shape().begin(), q.shape().end() - 3, k.shape().begin()) &&
                    std::equal(k.shape().begin(), k.shape().end() - 1, v.shape().begin()) &&
                    q.shape(-3) % k.shape(-3) == 0 && q.shape(-1) == k.shape(-1);
  if (!fits)
    fail(ErrorKind::invalid, "[{}] there is no kernel for q {}, k {} and v {}", c.op.name,
         to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  check_mask(c, mask, with_tail(q.shape(), 1, {k.shape(-2)}));
}

std::vector<OutputSpec> infer_attention(const OpCall& c) {
  check_attention(c, input_or_none(c, 3));
  const Array& q = c.inputs[0];
  return {{with_tail(q.shape(), 1, {c.inputs[2].shape(-1)}), dtype_of_out(c)},
          {with_tail(q.shape(), 1, {2}), DType::f32}};
}

std::vector<OutputSpec> infer_attention_backward(const OpCall& c) {
  check_attention(c, input_or_none(c, 6));
  std::vector<OutputSpec> specs;
  for (size_t i = 0; i < 3; ++i) specs.push_back({c.inputs[i].shape(), c.inputs[i].dtype()});
  return specs;
}

std::vector<Array> attention_gradient(const GradCall& c) {
  const Array &q = c.inputs[0], &k = c.inputs[1], &v = c.inputs[2], &stats = c.outputs[1],
              mask = input_or_none(c, 3);
  Array out = c.outputs[0];
  const Array d_out = c.output_grads[0] ? c.output_grads[0] : zeros_like(out);
  Attrs attrs = c.attrs;
  if (is_half(out.dtype())) {  // delta is subtracted from its like: of a rounded out it would be far off
    attrs.set("dtype", std::string("f32"));
    out = apply("attention", c.inputs, attrs)[0];
  }
  Array delta = sum(f32(d_out) * out, {-1});
  if (c.output_grads[1]) delta = delta + squeeze(share_of(c.output_grads[1] * stats), -1);
  attrs.set("dtype", std::monostate());
  const std::vector<Array> inputs = {q, k, v, d_out, stats, delta, mask};
  std::vector<Array> result = apply("attention_backward", inputs, attrs);
  if (mask && is_float(mask.dtype()))
    result.push_back(attention_gradients({c.op, inputs, c.attrs, c.device}).back());
  return result;
}

/// Attention differentiated twice is composed.
std::vector<Array> attention_backward_gradient(const GradCall& c) {
  std::vector<Array> inputs;
  for (const Array& x : c.inputs) inputs.push_back(fresh(x));
  const std::vector<Array> outputs = compose_attention_backward({c.op, inputs, c.attrs, c.device});
  if (inputs.size() > 6 && !(inputs[6] && is_float(inputs[6].dtype()))) inputs.pop_back();
  return vjp(outputs, c.output_grads, inputs);
}

/// out and stats, by the kernels where there are any.
std::vector<Array> attention_of(const Array& q, const Array& k, const Array& v, const Array& mask,
                                const Attrs& attrs, const Device& device) {
  const Op& op = find_op("attention");
  const std::vector<Array> inputs = {q, k, v, mask};
  return has_kernel(q, k, v) ? apply(op, inputs, attrs) : compose_attention({op, inputs, attrs, device});
}

/// `heads` heads where there was one for all.
Array with_heads(const Array& x, const Shape& lead, int64_t heads) {
  Shape shape = lead;
  shape.insert(shape.end(), {heads, x.shape(-2), x.shape(-1)});
  return expand(x, shape);
}

Array sdpa(const OpCall& c) {
  Array q = c.inputs[0], k = c.inputs[1], v = c.inputs[2];
  const Array mask = input_or_none(c, 3);
  const bool grouped = c.attrs.flag("enable_gqa");
  for (Array* x : {&q, &k, &v}) {
    if (x->ndim() < (grouped ? 3u : 2u))
      fail(ErrorKind::invalid, "[sdpa] takes (..,heads,tokens,dim), not {}", to_string(x->shape()));
    if (x->ndim() == 2) *x = unsqueeze(*x, 0);
  }
  if (k.shape(-1) != q.shape(-1) || v.shape(-2) != k.shape(-2))
    fail(ErrorKind::invalid, "[sdpa] q {}, k {} and v {} do not go together", to_string(c.inputs[0].shape()),
         to_string(c.inputs[1].shape()), to_string(c.inputs[2].shape()));

  // Leading dims broadcast; without groups so do heads.
  int64_t heads = q.shape(-3), key_heads = k.shape(-3);
  if (grouped && (key_heads < 1 || heads % key_heads != 0 || v.shape(-3) != key_heads))
    fail(ErrorKind::invalid, "[sdpa] {} query heads do not share {} key heads and {} value heads", heads,
         key_heads, v.shape(-3));
  const auto lead_of = [](const Array& x, size_t tail) {
    return Shape(x.shape().begin(), x.shape().end() - static_cast<int64_t>(tail));
  };
  Shape lead =
      broadcast_shapes("sdpa", lead_of(q, 3), broadcast_shapes("sdpa", lead_of(k, 3), lead_of(v, 3)));
  if (!grouped) {
    heads = broadcast_shapes("sdpa", {heads}, broadcast_shapes("sdpa", {key_heads}, {v.shape(-3)}))[0];
    if (key_heads != 1 || v.shape(-3) != 1) key_heads = heads;
  }
  q = with_heads(q, lead, heads), k = with_heads(k, lead, key_heads), v = with_heads(v, lead, key_heads);
  check_mask(c, mask, with_tail(q.shape(), 1, {k.shape(-2)}));

  if (c.attrs.has("softcap") && !(c.attrs.number("softcap") > 0))
    fail(ErrorKind::invalid, "[sdpa] softcap is {}: a number above 0 is needed", c.attrs.number("softcap"));
  Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(q.shape(-1)))}};
  for (const char* name : {"causal", "scale", "softcap", "window"})
    if (c.attrs.has(name)) attrs.set(name, c.attrs.values().at(name));
  const Array out = attention_of(q, k, v, mask, attrs, c.device)[0];
  const bool plain = std::ranges::all_of(c.inputs.begin(), c.inputs.begin() + 3,
                                         [](const Array& x) { return x.ndim() == 2; });
  return plain ? squeeze(out, 0) : out;
}

// ---- Attention over a cache. --------------------------------------------------------------------

/// The inputs of cached_attention. Rows of the cache are the key heads' columns side by side, as floats or in
/// blocks. A token sees a key of its own sequence that is not behind it (causal) nor `window` or more before.
/// With a `pitch` sequences are 0, 1, .. and the key at position p of sequence s is number s * pitch + p.
struct CachedInputs {
  const Array &q, &keys, &values;                         // (n, heads, dim), (rows, ..)
  const Array &key_rows, &key_positions, &key_sequences;  // i32 (keys)
  const Array &positions, &sequences;                     // i32 (n)
  const Array sinks, slopes;                              // f32 (heads), or none

  explicit CachedInputs(const OpCall& c)
      : q(c.inputs[0]),
        keys(c.inputs[1]),
        values(c.inputs[2]),
        key_rows(c.inputs[3]),
        key_positions(c.inputs[4]),
        key_sequences(c.inputs[5]),
        positions(c.inputs[6]),
        sequences(c.inputs[7]),
        sinks(input_or_none(c, 8)),
        slopes(input_or_none(c, 9)) {}
};

std::vector<OutputSpec> infer_cached_attention(const OpCall& c) {
  const CachedInputs in(c);
  const std::string& type = c.attrs.text("type");
  if (in.q.ndim() != 3 || in.q.dtype() != DType::f32 || in.q.size() == 0)
    fail(ErrorKind::invalid, "[cached_attention] q is {} {}, expected f32 (n,heads,dim)",
         name_of(in.q.dtype()), to_string(in.q.shape()));
  for (const Array* cache : {&in.keys, &in.values})
    if (cache->ndim() != 2 || cache->shape(0) != in.keys.shape(0) || cache->size() == 0 ||
        (type.empty() ? !is_float(cache->dtype()) : cache->dtype() != DType::u8))
      fail(ErrorKind::invalid, "[cached_attention] rows of the cache are {} {}, expected (rows,columns) {}",
           name_of(cache->dtype()), to_string(cache->shape()), type.empty() ? "of a float" : "in blocks, u8");
  const CachedProblem problem(in.q.shape(), in.keys.shape(), in.values.shape(), c.attrs);
  const auto check = [&](const Array& x, DType dtype, int64_t count, std::string_view name) {
    if (x && (x.dtype() != dtype || x.shape() != Shape{count}))
      fail(ErrorKind::invalid, "[cached_attention] {} are {} {}, expected {} ({})", name, name_of(x.dtype()),
           to_string(x.shape()), name_of(dtype), count);
  };
  const int64_t keys = in.key_rows.size();
  if (keys == 0) fail(ErrorKind::invalid, "[cached_attention] there are no keys");
  if (problem.pitch < 0 || (problem.pitch > 0 && keys % problem.pitch != 0))
    fail(ErrorKind::invalid, "[cached_attention] {} keys are not whole sequences of {}", keys, problem.pitch);
  check(in.key_rows, DType::i32, keys, "rows of keys");
  check(in.key_positions, DType::i32, keys, "positions of keys");
  check(in.key_sequences, DType::i32, keys, "sequences of keys");
  check(in.positions, DType::i32, problem.tokens, "positions");
  check(in.sequences, DType::i32, problem.tokens, "sequences");
  check(in.sinks, DType::f32, problem.heads, "sinks");
  check(in.slopes, DType::f32, problem.heads, "slopes");
  return {{{problem.tokens, problem.heads * problem.value_dim}, DType::f32}};
}

/// bool (n, keys).
Array visible_in_cache(const OpCall& c, const CachedInputs& in) {
  const Array at = unsqueeze(in.positions, 1), key_at = unsqueeze(in.key_positions, 0);
  const int64_t window = c.attrs.integer("window");
  Array visible = eq(unsqueeze(in.sequences, 1), unsqueeze(in.key_sequences, 0));
  if (c.attrs.flag("causal")) visible = both(visible, call("le", {key_at, at}));
  if (window > 0) visible = both(visible, lt(at - key_at, scalar_like(at, static_cast<double>(window))));
  return visible;
}

std::vector<Array> compose_cached_attention(const OpCall& c) {
  const CachedInputs in(c);
  const std::string& type = c.attrs.text("type");
  const CachedProblem problem(in.q.shape(), in.keys.shape(), in.values.shape(), c.attrs);
  const auto seen = [&](const Array& from, int64_t dim) {  // (key heads, keys, dim)
    const Array rows = index_select(from, in.key_rows, 0);
    const Ints shape = {rows.shape(0), problem.key_heads, dim};
    return transpose(type.empty() ? reshape(f32(rows), shape)
                                  : call("dequantize", {rows}, {{"type", type}, {"shape", shape}}),
                     0, 1);
  };
  Array mask = visible_in_cache(c, in);
  if (in.slopes) {
    const Array far = f32(unsqueeze(in.key_positions, 0) - unsqueeze(in.positions, 1)),
                bias = far * reshape(in.slopes, {-1, 1, 1});
    mask = where(mask, bias, scalar_like(bias, -kInfinity));
  }
  Attrs attrs{{"scale", c.attrs.number("scale")}, {"causal", false}};  // the mask says it
  if (c.attrs.number("softcap") > 0) attrs.set("softcap", c.attrs.number("softcap"));
  const std::vector<Array> out = attention_of(transpose(in.q, 0, 1), seen(in.keys, problem.dim),
                                              seen(in.values, problem.value_dim), mask, attrs, c.device);
  Array y = out[0];  // (heads, n, value_dim)
  // A sink is a score more in the softmax's sum, and nothing more in what is summed up.
  if (in.sinks) {
    const Array above = reshape(in.sinks, {-1, 1, 1}) - top_of(out[1]);
    // exp(80) is finite, and more than enough.
    y = y / (exp(call("minimum", {above, scalar_like(above, 80)})) * share_of(out[1]) + 1.0);
  }
  return {reshape(transpose(y, 0, 1), {in.q.shape(0), -1})};
}

// ---- Rotary position encoding. ------------------------------------------------------------------

struct Rotation {
  Array cos, sin;  // (t, rotary_dim/2) or (b, 1, t, rotary_dim/2)
};

/// For positions offset, offset+1, ...: tables made in double.
Rotation rotation_at(int64_t offset, int64_t t, const std::vector<double>& frequencies,
                     const Device& device) {
  std::vector<float> cosines, sines;
  for (int64_t i = 0; i < t; ++i)
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(offset + i) * frequency;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  const Shape shape = {t, static_cast<int64_t>(frequencies.size())};
  return {Array::from_vector(cosines, shape, device), Array::from_vector(sines, shape, device)};
}

/// For positions (t) or (b, t) that are only known on the device. Angles are counted in turns, whose
/// frequency is split into 7 leading bits and the rest: position * leading is exact up to 2^17, so whole
/// turns drop out without error, and sin and cos see [-pi, pi], where WGSL promises their accuracy.
Rotation rotation_at(const Array& positions, const std::vector<double>& frequencies, const Device& device) {
  std::vector<float> leading, rest;
  for (double frequency : frequencies) {
    const double turns = frequency / (2 * M_PI);
    int exponent = 0;
    const double mantissa = std::frexp(turns, &exponent);
    leading.push_back(static_cast<float>(std::ldexp(std::nearbyint(mantissa * 128) / 128, exponent)));
    rest.push_back(static_cast<float>(turns - static_cast<double>(leading.back())));
  }
  const Shape shape = {static_cast<int64_t>(frequencies.size())};
  Array p = unsqueeze(f32(positions), -1);
  if (positions.ndim() == 2) p = unsqueeze(p, 1);
  const auto fraction = [](const Array& x) { return x - call("round", {x}); };
  const Array coarse = fraction(p * Array::from_vector(leading, shape, device));
  const Array angle = fraction(coarse + p * Array::from_vector(rest, shape, device)) * (2 * M_PI);
  return {call("cos", {angle}), call("sin", {angle})};
}

Array rope(const OpCall& c) {
  const Array& x = c.inputs[0];  // (b, h, t, d)
  if (x.ndim() < 2) fail(ErrorKind::invalid, "[rope] takes (b,h,t,d), not {}", to_string(x.shape()));
  const int64_t d = x.shape(-1), t = x.shape(-2),
                rotary = c.attrs.has("rotary_dim") ? c.attrs.integer("rotary_dim") : d;
  if (rotary < 0 || rotary > d || rotary % 2 != 0)
    fail(ErrorKind::invalid, "[rope] rotary_dim is {}: an even number up to {} is needed", rotary, d);
  if (rotary == 0) return x;
  const std::string& layout = c.attrs.text("layout");
  if (layout != "neox" && layout != "interleaved")
    fail(ErrorKind::invalid, "[rope] layout is neox or interleaved, not {}", layout);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary / 2; ++i)
    frequencies.push_back(
        std::pow(c.attrs.number("base"), -2.0 * static_cast<double>(i) / static_cast<double>(rotary)));

  const Array positions = c.inputs.size() > 1 ? c.inputs[1] : Array();
  if (positions && (positions.ndim() < 1 || positions.ndim() > 2 || positions.shape(-1) != t ||
                    (positions.ndim() == 2 && x.ndim() != 4)))
    fail(ErrorKind::invalid, "[rope] positions {} do not fit x {}: (t) or (b,t) is needed",
         to_string(positions.shape()), to_string(x.shape()));
  const Rotation at = positions ? rotation_at(positions, frequencies, c.device)
                                : rotation_at(c.attrs.integer("offset"), t, frequencies, c.device);

  const bool neox = layout == "neox";
  const Array wide = f32(x);
  const Array u = neox ? slice_dim(wide, -1, 0, rotary / 2) : slice_dim(wide, -1, 0, rotary, 2);
  const Array v = neox ? slice_dim(wide, -1, rotary / 2, rotary) : slice_dim(wide, -1, 1, rotary, 2);
  const Array a = u * at.cos - v * at.sin, b = v * at.cos + u * at.sin;
  std::vector<Array> parts = {a, b};
  if (!neox)
    parts = {reshape(cat({unsqueeze(a, -1), unsqueeze(b, -1)}, -1), with_tail(x.shape(), 1, {rotary}))};
  if (rotary < d) parts.push_back(slice_dim(wide, -1, rotary, d));
  return as(parts.size() == 1 ? parts[0] : cat(parts, -1), x.dtype());
}

}  // namespace

std::vector<Op> attention_ops() {
  const std::vector<AttrSpec> attrs = {
      {"causal", false}, {"scale", {}, true}, {"softcap"}, {"window"}, {"dtype"}};  // dtype: of out
  return {
      // q, k, v, mask? -> out, stats
      {.name = "attention",
       .kind = OpKind::primitive,
       .min_inputs = 3,
       .max_inputs = 4,
       .attrs = attrs,
       .infer = infer_attention,
       .compose = compose_attention,
       .gradient = attention_gradient},
      // q, k, v, gradient of out, stats, delta, mask? -> gradients of q, k, v
      {.name = "attention_backward",
       .kind = OpKind::primitive,
       .min_inputs = 6,
       .max_inputs = 7,
       .attrs = attrs,
       .infer = infer_attention_backward,
       .compose = compose_attention_backward,
       .gradient = attention_backward_gradient},
      // The inputs of CachedInputs -> (n, heads * value_dim). `type`: of blocks in the cache.
      {.name = "cached_attention",
       .kind = OpKind::primitive,
       .min_inputs = 8,
       .max_inputs = 10,
       .attrs = {{"scale", {}, true},
                 {"softcap", 0.0},
                 {"window", int64_t{0}},
                 {"pitch", int64_t{0}},
                 {"causal", true},
                 {"type", std::string()}},
       .infer = infer_cached_attention,
       .compose = compose_cached_attention},
      composed1("sdpa", 3, 4, {{"causal", false}, {"scale"}, {"enable_gqa", false}, {"softcap"}, {"window"}},
                sdpa),
      composed1("rope", 1, 2,
                {{"base", 10000.0}, {"layout", std::string("neox")}, {"rotary_dim"}, {"offset", int64_t{0}}},
                rope),
  };
}

}  // namespace weft
