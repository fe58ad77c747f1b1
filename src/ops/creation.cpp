// Arrays made from nothing but attributes.
#include <cmath>

#include "array/element.h"
#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

/// An array of value(0), value(1) ..., computed in double on the host and rounded once.
template <typename F>
Array from_values(DType dtype, const Shape& shape, const Device& device, F value) {
  const auto count = static_cast<size_t>(element_count(shape));
  HostTensor host{dtype, shape, std::vector<std::byte>(count * size_of(dtype))};
  for (size_t i = 0; i < count; ++i) set_number(dtype, host.bytes.data(), i, value(static_cast<int64_t>(i)));
  return Array::from_host(host, device);
}

int64_t count_attr(const OpCall& c, std::string_view name) {
  const int64_t count = c.attrs.integer(name);
  if (count < 0) fail(ErrorKind::invalid, "[{}] {} is {}", c.op.name, name, count);
  return count;
}

Array make_arange(const OpCall& c) {
  const double start = c.attrs.number("start"), stop = c.attrs.number("stop"), step = c.attrs.number("step");
  const double count = std::ceil((stop - start) / step);
  if (!(std::fabs(start) <= 0x1p53 && std::fabs(stop) <= 0x1p53 && std::fabs(count) <= 0x1p53))
    fail(ErrorKind::invalid, "[arange] there is no range from {} to {} in steps of {}", start, stop, step);
  return from_values(dtype_from_name(c.attrs.text("dtype")),
                     {std::max<int64_t>(static_cast<int64_t>(count), 0)}, c.device,
                     [=](int64_t i) { return start + static_cast<double>(i) * step; });
}

Array make_linspace(const OpCall& c) {
  const double start = c.attrs.number("start"), stop = c.attrs.number("stop");
  const int64_t count = count_attr(c, "num");
  return from_values(DType::f32, {count}, c.device, [=](int64_t i) {
    if (i == 0) return start;
    return i == count - 1
               ? stop
               : start + (stop - start) * (static_cast<double>(i) / static_cast<double>(count - 1));
  });
}

Array make_eye(const OpCall& c) {
  const int64_t rows = count_attr(c, "n"), columns = c.attrs.has("m") ? count_attr(c, "m") : rows;
  const auto count_up = [&](int64_t count) {
    return call("arange", {}, {{"stop", count}, {"dtype", std::string("i32")}}, c.device);
  };
  return as(eq(unsqueeze(count_up(rows), 1), unsqueeze(count_up(columns), 0)), DType::f32);
}

/// Takes no memory of its size: one value with strides of 0.
Array make_full(const OpCall& c) {
  const double value = c.attrs.number("value");
  for (int64_t size : c.attrs.list("shape"))
    if (size < 0)
      fail(ErrorKind::invalid, "[full] shape {} has a negative size", to_string(c.attrs.list("shape")));
  return expand(call("constant", {}, {{"value", value}, {"dtype", c.attrs.text("dtype")}}, c.device),
                c.attrs.list("shape"));
}

Array sinusoidal_encoding(const OpCall& c) {
  const int64_t length = count_attr(c, "length"), dim = count_attr(c, "dim");
  if (dim % 2 != 0)
    fail(ErrorKind::invalid, "[sinusoidal_encoding] dim {} is odd: sines and cosines come in pairs", dim);
  return from_values(DType::f32, {length, dim}, c.device, [=](int64_t i) {
    const int64_t position = i / dim, column = i % dim;
    const double angle =
        static_cast<double>(position) /
        std::pow(10000.0, static_cast<double>(column - column % 2) / static_cast<double>(dim));
    return column % 2 == 0 ? std::sin(angle) : std::cos(angle);
  });
}

}  // namespace

std::vector<Op> creation_ops() {
  const std::string f32 = "f32";
  return {
      composed1("arange", 0, 0, {{"start", 0.0}, {"stop", {}, true}, {"step", 1.0}, {"dtype", f32}},
                make_arange),
      composed1("linspace", 0, 0, {{"start", {}, true}, {"stop", {}, true}, {"num", {}, true}},
                make_linspace),
      composed1("eye", 0, 0, {{"n", {}, true}, {"m"}}, make_eye),
      composed1("full", 0, 0, {{"shape", {}, true}, {"value", {}, true}, {"dtype", f32}}, make_full),
      composed1("sinusoidal_encoding", 0, 0, {{"length", {}, true}, {"dim", {}, true}}, sinusoidal_encoding),
  };
}

Array full(const Shape& shape, double value, const ArrayOptions& options) {
  return call("full", {},
              {{"shape", shape}, {"value", value}, {"dtype", std::string(name_of(options.dtype))}},
              options.device);
}
Array zeros(const Shape& shape, const ArrayOptions& options) {
  return full(shape, 0, options);
}
Array ones(const Shape& shape, const ArrayOptions& options) {
  return full(shape, 1, options);
}
Array full_like(const Array& x, double value) {
  return full(x.shape(), value, {x.dtype(), x.device()});
}
Array zeros_like(const Array& x) {
  return full_like(x, 0);
}
Array ones_like(const Array& x) {
  return full_like(x, 1);
}

Array arange(double stop, const ArrayOptions& options) {
  return arange(0, stop, 1, options);
}
Array arange(double start, double stop, double step, const ArrayOptions& options) {
  return call(
      "arange", {},
      {{"start", start}, {"stop", stop}, {"step", step}, {"dtype", std::string(name_of(options.dtype))}},
      options.device);
}
Array linspace(double start, double stop, int64_t count, const Device& device) {
  return call("linspace", {}, {{"start", start}, {"stop", stop}, {"num", count}}, device);
}
Array eye(int64_t rows, const Device& device) {
  return eye(rows, rows, device);
}
Array eye(int64_t rows, int64_t columns, const Device& device) {
  return call("eye", {}, {{"n", rows}, {"m", columns}}, device);
}

}  // namespace weft
