// Random numbers: one primitive, random_bits; everything else is written in it.
#include "ops/random.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/threefry.h"
#include "ops/shorthand.h"
#include "weft/random.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;

Shape shape_of(const OpCall& c) {
  for (int64_t size : c.attrs.list("shape"))
    if (size < 0)
      fail(ErrorKind::invalid, "[{}] shape {} has a negative size", c.op.name,
           to_string(c.attrs.list("shape")));
  return c.attrs.list("shape");
}

DType float_of(const OpCall& c) {
  const DType dtype = dtype_from_name(c.attrs.text("dtype"));
  if (!is_float(dtype)) fail(ErrorKind::invalid, "[{}] makes floats, not {}", c.op.name, name_of(dtype));
  return dtype;
}

Array bits(const Array& key, const Shape& shape) {
  return call("random_bits", {key}, {{"shape", Ints(shape)}});
}

/// The highest `count` bits, at most 24, as a whole number in f32.
Array high_bits(const Array& bits, int count) {
  return as(call("shift_right", {bits, scalar_like(bits, 32 - count)}), DType::f32);
}

/// In [0, 1), as fine as the dtype is just below 1: nothing is rounded.
Array unit(const Array& bits, DType dtype) {
  const int count = dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  return as(high_bits(bits, count) * std::exp2(-count), dtype);
}

Array draw_uniform(const OpCall& c) {
  const double low = c.attrs.number("low"), high = c.attrs.number("high");
  const DType dtype = float_of(c);
  const Array all = bits(c.inputs[0], shape_of(c));
  if (low == 0 && high == 1) return unit(all, dtype);
  return as(unit(all, DType::f32) * (high - low) + low, dtype);
}

/// Box and Muller: a radius and an angle, of which one coordinate is used.
Array draw_normal(const OpCall& c) {
  const DType dtype = float_of(c);
  Shape twice = shape_of(c);
  twice.insert(twice.begin(), 2);
  const Array u = unit(bits(c.inputs[0], twice), DType::f32);
  const Array radius = sqrt(log(1.0 - squeeze(slice_dim(u, 0, 0, 1), 0)) * -2.0);
  const Array angle = squeeze(slice_dim(u, 0, 1, 2), 0) * (2 * std::numbers::pi);
  const Array z = radius * call("cos", {angle});
  return as(z * c.attrs.number("std") + c.attrs.number("mean"), dtype);
}

/// -log(-log(u)) with u in (0, 1).
Array draw_gumbel(const OpCall& c) {
  const Array u = (high_bits(bits(c.inputs[0], shape_of(c)), 23) + 0.5) * 0x1p-23;
  return -log(-log(u));
}

Array draw_randint(const OpCall& c) {
  const int64_t low = c.attrs.integer("low"), high = c.attrs.integer("high");
  const DType dtype = dtype_from_name(c.attrs.text("dtype"));
  if (!is_integer(dtype)) fail(ErrorKind::invalid, "[randint] makes whole numbers, not {}", name_of(dtype));
  if (low >= high || high - low > int64_t{std::numeric_limits<uint32_t>::max()})
    fail(ErrorKind::invalid, "[randint] from {} to below {}: 1 to 2^32-1 numbers are possible", low, high);
  const Array all = bits(c.inputs[0], shape_of(c));
  const Array offset = call("remainder", {all, scalar_like(all, static_cast<double>(high - low))});
  return as(offset, dtype) + scalar_like(as(offset, dtype), static_cast<double>(low));
}

Array draw_bernoulli(const OpCall& c) {
  const Array p = as(c.inputs[1], DType::f32);
  return lt(unit(bits(c.inputs[0], p.shape()), DType::f32), p);
}

Array drop(const OpCall& c) {
  const Array& x = c.inputs[0];
  const double p = c.attrs.number("p");
  if (!(p >= 0 && p <= 1)) fail(ErrorKind::invalid, "[dropout] p is {}, not a probability", p);
  if (p == 0) return x;
  if (p == 1) return zeros_like(x);
  const Array u = unit(bits(c.inputs[1], x.shape()), DType::f32);
  return where(lt(u, scalar_like(u, p)), scalar_like(x, 0), x * (1 / (1 - p)));
}

/// Gumbel's way: the largest of logit + noise is distributed as softmax(logits).
Array draw_categorical(const OpCall& c) {
  const Array logits = as(c.inputs[0], DType::f32);
  const Array noise = call("gumbel", {c.inputs[1]}, {{"shape", Ints(logits.shape())}});
  return call("argmax", {logits + noise}, {{"dim", c.attrs.integer("dim")}});
}

Array draw_permutation(const OpCall& c) {
  const int64_t count = c.attrs.integer("n");
  if (count < 0) fail(ErrorKind::invalid, "[permutation] of {} elements", count);
  return call("argsort", {bits(c.inputs[0], {count})});
}

// ---- The process's stream of keys.
// ------------------------------------------------------------------------------

struct Stream {
  std::mutex mutex;
  StreamState state;
};

Stream& stream() {
  static Stream one;
  return one;
}

StreamState exchange(const StreamState& state) {
  Stream& keys = stream();
  const std::lock_guard lock(keys.mutex);
  return std::exchange(keys.state, state);
}

std::array<uint32_t, 2> key_of(uint64_t seed) {
  return {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
}

Array key_array(const std::array<uint32_t, 2>& words, const Device& device) {
  return Array::from_vector(std::vector<uint32_t>(words.begin(), words.end()), {2}, device);
}

Array next_key(const Device& device) {
  Stream& keys = stream();
  const std::lock_guard lock(keys.mutex);
  return key_array(threefry(keys.state.key, {1, keys.state.drawn++}), device);
}

Array key_for(const RandomOptions& options) {
  return options.key ? options.key : next_key(options.device);
}

std::string dtype_name(const RandomOptions& options, DType otherwise) {
  return std::string(name_of(options.dtype.value_or(otherwise)));
}

}  // namespace

std::vector<Op> random_ops() {
  const AttrSpec shape = {"shape", {}, true}, f32 = {"dtype", std::string("f32")};
  return {
      // key u32 (2) -> u32; element i depends on the key and on i only
      {.name = "random_bits",
       .kind = OpKind::primitive,
       .attrs = {shape},
       .infer = [](const OpCall& c) -> Specs {
         const Array& key = c.inputs[0];
         if (key.dtype() != DType::u32 || key.shape() != Shape{2})
           fail(ErrorKind::invalid, "[random_bits] the key is {} {}, expected u32 (2)", name_of(key.dtype()),
                to_string(key.shape()));
         return {{shape_of(c), DType::u32}};
       }},
      composed1("uniform", 1, 1, {shape, {"low", 0.0}, {"high", 1.0}, f32}, draw_uniform),
      composed1("normal", 1, 1, {shape, {"mean", 0.0}, {"std", 1.0}, f32}, draw_normal),
      composed1("gumbel", 1, 1, {shape}, draw_gumbel),
      composed1("randint", 1, 1,
                {shape, {"low", {}, true}, {"high", {}, true}, {"dtype", std::string("i32")}}, draw_randint),
      composed1("bernoulli", 2, 2, {}, draw_bernoulli),
      composed1("dropout", 2, 2, {{"p", 0.5}}, drop),
      composed1("categorical", 2, 2, {{"dim", int64_t{-1}}}, draw_categorical),
      composed1("permutation", 1, 1, {{"n", {}, true}}, draw_permutation),
  };
}

StreamState stream_state() {
  Stream& keys = stream();
  const std::lock_guard lock(keys.mutex);
  return keys.state;
}
ReplayedStream::ReplayedStream(const StreamState& from) : before_(exchange(from)) {}
ReplayedStream::~ReplayedStream() {
  exchange(before_);
}

void set_seed(uint64_t seed) {
  exchange({.key = key_of(seed)});
}

Array random_key(uint64_t seed, const Device& device) {
  return key_array(key_of(seed), device);
}

std::vector<Array> split_key(const Array& key, int64_t count) {
  const Array all = bits(key, {count, 2});
  std::vector<Array> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back(squeeze(slice_dim(all, 0, i, i + 1), 0));
  return keys;
}

Array random_bits(const Shape& shape, const RandomOptions& options) {
  return bits(key_for(options), shape);
}
Array rand(const Shape& shape, const RandomOptions& options) {
  return uniform(shape, 0, 1, options);
}
Array uniform(const Shape& shape, double low, double high, const RandomOptions& options) {
  return call(
      "uniform", {key_for(options)},
      {{"shape", Ints(shape)}, {"low", low}, {"high", high}, {"dtype", dtype_name(options, DType::f32)}});
}
Array randn(const Shape& shape, const RandomOptions& options) {
  return call("normal", {key_for(options)},
              {{"shape", Ints(shape)}, {"dtype", dtype_name(options, DType::f32)}});
}
Array randint(int64_t low, int64_t high, const Shape& shape, const RandomOptions& options) {
  return call(
      "randint", {key_for(options)},
      {{"shape", Ints(shape)}, {"low", low}, {"high", high}, {"dtype", dtype_name(options, DType::i32)}});
}
Array bernoulli(double p, const Shape& shape, const RandomOptions& options) {
  const Array key = key_for(options);
  const Array truth =
      call("bernoulli", {key, call("full", {}, {{"shape", Ints(shape)}, {"value", p}}, key.device())});
  return as(truth, options.dtype.value_or(DType::boolean));
}
Array permutation(int64_t count, const RandomOptions& options) {
  return call("permutation", {key_for(options)}, {{"n", count}});
}
Array categorical(const Array& logits, int64_t dim, const Array& key) {
  return call("categorical", {logits, key ? key : next_key(logits.device())}, {{"dim", dim}});
}
Array dropout(const Array& x, double p, const Array& key) {
  return call("dropout", {x, key ? key : next_key(x.device())}, {{"p", p}});
}

}  // namespace weft
