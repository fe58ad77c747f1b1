// Attention and rotary position encoding. Everything is computed in f32 and rounded to the input's dtype
// once.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/shorthand.h"
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

// ---- Attention. ---------------------------------------------------------------------------------

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

Array sdpa(const OpCall& c) {
  const Array q = f32(c.inputs[0]), k = f32(c.inputs[1]),
              v = f32(c.inputs[2]);  // (.., h, t, d) (.., hk, s, d) (.., hk, s, dv)
  const bool grouped = c.attrs.flag("enable_gqa");
  for (const Array& x : {q, k, v})
    if (x.ndim() < (grouped ? 3u : 2u))
      fail(ErrorKind::invalid, "[sdpa] takes (..,heads,tokens,dim), not {}", to_string(x.shape()));
  const int64_t t = q.shape(-2), d = q.shape(-1), s = k.shape(-2);
  if (k.shape(-1) != d || v.shape(-2) != s)
    fail(ErrorKind::invalid, "[sdpa] q {}, k {} and v {} do not go together", to_string(q.shape()),
         to_string(k.shape()), to_string(v.shape()));

  // Query heads that share a key head become more rows of one product: (.., hk, h/hk * t, d).
  const int64_t heads = grouped ? q.shape(-3) : 1, key_heads = grouped ? k.shape(-3) : 1;
  if (key_heads < 1 || heads % key_heads != 0 || (grouped && v.shape(-3) != key_heads))
    fail(ErrorKind::invalid, "[sdpa] {} query heads do not share {} key heads and {} value heads", heads,
         key_heads, grouped ? v.shape(-3) : 1);
  const auto folded = [&](const Array& x) {
    return grouped ? reshape(x, with_tail(x.shape(), 3, {key_heads, heads / key_heads * t, x.shape(-1)})) : x;
  };
  const auto unfolded = [&](const Array& x) {
    return grouped ? reshape(x, with_tail(x.shape(), 3, {heads, t, x.shape(-1)})) : x;
  };

  const double scale = c.attrs.has("scale") ? c.attrs.number("scale") : 1 / std::sqrt(static_cast<double>(d));
  Array scores = unfolded(matmul(folded(q * scale), transpose(k, -2, -1)));         // (.., h, t, s)
  if (s == 0) return as(unfolded(matmul(folded(scores), v)), c.inputs[0].dtype());  // no key: zeros
  if (c.attrs.has("softcap")) {
    const double cap = c.attrs.number("softcap");
    scores = call("tanh", {scores / cap}) * cap;
  }
  Array visible = visible_by_position(c, t, s);
  const Array mask = c.inputs.size() > 3 ? c.inputs[3] : Array();
  if (mask && mask.dtype() != DType::boolean && !is_float(mask.dtype()))
    fail(ErrorKind::invalid, "[sdpa] the mask is {}, not bool or a float", name_of(mask.dtype()));
  if (mask && mask.dtype() == DType::boolean)
    visible = both(visible, mask);
  else if (mask)
    scores = scores + f32(mask);
  if (visible) scores = where(visible, scores, scalar_like(scores, -kInfinity));

  // A row with nothing visible has the maximum -inf and the sum 0. It shall be 0, not NaN.
  Array top = stop_gradient(max(scores, {-1}, true));
  if (visible || mask) top = where(eq(top, scalar_like(top, -kInfinity)), scalar_like(top, 0), top);
  const Array e = exp(scores - top);
  Array total = sum(e, {-1}, true);
  if (visible || mask) total = where(eq(total, scalar_like(total, 0)), scalar_like(total, 1), total);
  return as(unfolded(matmul(folded(e), v)) / total, c.inputs[0].dtype());
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
  return {
      composed1("sdpa", 3, 4, {{"causal", false}, {"scale"}, {"enable_gqa", false}, {"softcap"}, {"window"}},
                sdpa),
      composed1("rope", 1, 2,
                {{"base", 10000.0}, {"layout", std::string("neox")}, {"rotary_dim"}, {"offset", int64_t{0}}},
                rope),
  };
}

}  // namespace weft
