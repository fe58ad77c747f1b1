// Convolution, pooling and resampling over the last dims. Convolutions have kernels; without them, and all
// else, they are windows (views), matrix products and lookups. Computed in f32 and rounded to the input's
// dtype once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "array/host_tensor.h"
#include "base/error.h"
#include "ops/shorthand.h"
#include "weft/grad.h"

namespace weft {
namespace {

Array f32(const Array& x) {
  return as(x, DType::f32);
}

/// A list attribute with one entry per spatial dim, or that many `fallback`.
Ints per_dim(const OpCall& c, std::string_view name, size_t rank, int64_t fallback) {
  if (!c.attrs.has(name)) return Ints(rank, fallback);
  const Ints& values = c.attrs.list(name);
  if (values.size() != rank)
    fail(ErrorKind::invalid, "[{}] {} has {} entries for {} spatial dims", c.op.name, name, values.size(),
         rank);
  return values;
}

Array indices(const Ints& values, const Shape& shape, const Device& device) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  HostTensor host{DType::i32, shape, std::vector<std::byte>(narrow.size() * sizeof(int32_t))};
  if (!narrow.empty()) std::memcpy(host.bytes.data(), narrow.data(), host.bytes.size());
  return Array::from_host(host, device);
}

Array select(const Array& x, int64_t dim, const Ints& sources, const Device& device) {
  return call("index_select", {x, indices(sources, {static_cast<int64_t>(sources.size())}, device)},
              {{"dim", dim}});
}

/// A vector shaped to broadcast along `dim` (negative) of an array.
Array along(const Array& values, int64_t dim) {
  Shape shape(static_cast<size_t>(-dim), 1);
  shape[0] = values.size();
  return reshape(values, shape);
}

/// Windows of `k` elements, `dilation` apart, one every `stride`: dim becomes their count, their elements the
/// last dim.
Array windows(const Array& x, int64_t dim, int64_t k, int64_t stride, int64_t dilation) {
  const int64_t d = normalize_dim("windows", dim, x.ndim());
  const int64_t span = dilation * (k - 1) + 1, count = (x.shape(d) - span) / stride + 1;
  if (stride == k && dilation == 1) {  // side by side: a reshape, whose gradient is one too
    Shape split = x.shape();
    split[static_cast<size_t>(d)] = count;
    split.insert(split.begin() + d + 1, k);
    Ints order;
    for (int64_t i = 0; i < static_cast<int64_t>(split.size()); ++i)
      if (i != d + 1) order.push_back(i);
    order.push_back(d + 1);
    return permute(reshape(slice_dim(x, d, 0, count * k), split), order);
  }
  const Array all = call("unfold", {x}, {{"dim", d}, {"size", span}, {"step", stride}});
  return dilation == 1 ? all : slice_dim(all, -1, 0, span, dilation);
}

/// x with one `pads` entry per spatial dim (before, after); negative ones crop.
Array padded(const Array& x, const std::vector<std::pair<int64_t, int64_t>>& pads, double value) {
  if (std::ranges::all_of(pads, [](const auto& p) { return p.first == 0 && p.second == 0; })) return x;
  Ints flat(2 * (x.ndim() - pads.size()), 0);
  for (const auto& [before, after] : pads) flat.insert(flat.end(), {before, after});
  return call("pad", {x}, {{"pads", flat}, {"value", value}});
}

// ---- Convolution. -------------------------------------------------------------------------------

/// How windows lie: one entry per spatial dim.
struct ConvShape {
  Ints stride, padding, dilation;
  int64_t groups = 1;

  explicit ConvShape(const OpCall& c, size_t rank)
      : stride(per_dim(c, "stride", rank, 1)),
        padding(per_dim(c, "padding", rank, 0)),
        dilation(per_dim(c, "dilation", rank, 1)),
        groups(c.attrs.integer("groups")) {}

  Attrs attrs() const {
    return {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}};
  }
  Attrs attrs_with_size(const Shape& shape) const {  // of the spatial dims of `shape`
    Attrs result = attrs();
    result.set("size", Ints(shape.begin() + 2, shape.end()));
    return result;
  }
  int64_t span(const Array& w, size_t i) const { return dilation[i] * (w.shape()[2 + i] - 1) + 1; }
};

/// A convolution where each group has one input channel: a sum of shifted copies of x, each times a number
/// for each channel, which is one elementwise kernel. A product per group would have single rows: 32 x 128 x
/// 56 x 56 with taps of 3 x 3 took 726 us on an H200.
Array add_shifted(const Array& x, const Array& w, const ConvShape& how) {
  const size_t rank = how.stride.size();
  const int64_t n = x.shape(0), groups = how.groups, co = w.shape(0),
                taps = element_count({w.shape().begin() + 2, w.shape().end()});
  Shape broad = {groups, co / groups};
  broad.insert(broad.end(), rank, 1);
  const Array numbers = reshape(w, {groups, co / groups, taps}), image = unsqueeze(x, 2);
  Array sum;
  Shape shape = {n, co};
  for (int64_t tap = 0; tap < taps; ++tap) {
    Array shifted = image;  // (n, groups, 1, ..)
    int64_t rest = tap;
    for (size_t i = rank; i-- > 0; rest /= w.shape()[2 + i]) {
      const int64_t first = rest % w.shape()[2 + i] * how.dilation[i],
                    last = x.shape()[2 + i] - how.span(w, i) + first;
      shifted = slice_dim(shifted, static_cast<int64_t>(3 + i), first, last + 1, how.stride[i]);
    }
    const Array term = shifted * reshape(slice_dim(numbers, 2, tap, tap + 1), broad);
    sum = sum ? sum + term : term;
  }
  shape.insert(shape.end(), sum.shape().begin() + 3, sum.shape().end());
  return reshape(sum, shape);
}

/// x (channels, ..) as (groups, channels/groups, all else).
Array by_groups(const Array& x, int64_t groups) {
  return reshape(x, {groups, x.shape(0) / groups, x.size() / x.shape(0)});
}

/// Windows of x (n, ci, ..), padded already, as (groups, ci/groups * taps, n * positions).
Array columns_of(const Array& x, const Ints& taps, const ConvShape& how) {
  const auto rank = static_cast<int64_t>(taps.size());
  Array views = x;  // (n, ci, positions.., taps..)
  for (size_t i = 0; i < taps.size(); ++i)
    views = windows(views, static_cast<int64_t>(2 + i), taps[i], how.stride[i], how.dilation[i]);
  Ints order = {1};
  for (int64_t i = 0; i < rank; ++i) order.push_back(2 + rank + i);
  order.push_back(0);
  for (int64_t i = 0; i < rank; ++i) order.push_back(2 + i);
  const int64_t rows = x.shape(1) / how.groups * element_count(taps);
  return reshape(permute(views, order), {how.groups, rows, views.size() / (how.groups * rows)});
}

/// One input channel for each group, and not so many taps that their sum would be several kernels.
bool is_shifted(const Array& x, const Ints& taps, const ConvShape& how) {
  constexpr int64_t kFewTaps = 24;  // two instructions each
  return x.shape(1) == how.groups && element_count(taps) <= kFewTaps;
}

/// x (n, ci, ..) padded already, w (co, ci/groups, ..): one product per group of (co/groups, ci/groups *
/// taps) with (ci/groups * taps, n * positions).
Array correlate(const Array& x, const Array& w, const ConvShape& how) {
  const Ints taps(w.shape().begin() + 2, w.shape().end());
  if (is_shifted(x, taps, how)) return add_shifted(x, w, how);
  Shape shape = {w.shape(0), x.shape(0)};
  for (size_t i = 0; i < taps.size(); ++i)
    shape.push_back((x.shape()[2 + i] - how.span(w, i)) / how.stride[i] + 1);
  const Array y = matmul(by_groups(w, how.groups), columns_of(x, taps, how));
  return transpose(reshape(y, shape), 0, 1);
}

// The primitives `convolve`, `convolve_input` and `convolve_weight` are linear in both inputs: any two of
// (x, w, y) give the gradient of the third, so the gradients of the three are among them.

Array with_padding(const Array& x, const ConvShape& how) {
  std::vector<std::pair<int64_t, int64_t>> pads;
  for (int64_t p : how.padding) pads.emplace_back(p, p);
  return padded(x, pads, 0);
}

Array compose_convolve(const OpCall& c) {
  const ConvShape how(c, c.inputs[0].ndim() - 2);
  return correlate(with_padding(c.inputs[0], how), c.inputs[1], how);
}

/// x with stride-1 zeros between its elements.
Array spread(const Array& x, size_t dim, int64_t stride) {
  const int64_t d = static_cast<int64_t>(dim), n = x.shape()[dim];
  if (stride == 1 || n == 0) return x;
  Shape shape = x.shape();
  shape[dim] *= stride;
  return slice_dim(reshape(pad_dim(unsqueeze(x, d + 1), d + 1, 0, stride - 1), shape), d, 0,
                   (n - 1) * stride + 1);
}

/// g, which has one channel in a group, spread by the stride and correlated with the kernel turned round.
Array add_spread(Array g, Array w, ConvShape how, const Ints& size) {
  const size_t rank = size.size();
  std::vector<std::pair<int64_t, int64_t>> pads;
  for (size_t i = 0; i < rank; ++i) {
    g = spread(g, 2 + i, how.stride[i]);
    const int64_t before = how.span(w, i) - 1 - how.padding[i];
    pads.emplace_back(before, size[i] + how.span(w, i) - 1 - before - g.shape()[2 + i]);
  }
  Ints starts(rank + 2, kNone), stops(rank + 2, kNone), steps(rank + 2, -1);
  steps[0] = steps[1] = 1;
  w = call("slice", {w}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
  how.stride = Ints(rank, 1);
  Shape turned = w.shape();  // (groups, ci/groups, ..) -> (ci, 1, ..)
  turned[0] *= std::exchange(turned[1], 1);
  return add_shifted(padded(g, pads, 0), reshape(w, turned), how);
}

/// The gradient of x: what each window gets of the gradient of y, summed up where windows overlap. As a
/// convolution of the spread gradient it would be a product of stride^2 times the size.
Array compose_convolve_input(const OpCall& c) {
  const Array &g = c.inputs[0], &w = c.inputs[1];  // w (co, ci/groups, ..)
  const size_t rank = g.ndim() - 2;
  const ConvShape how(c, rank);
  const Ints &size = c.attrs.list("size"), taps(w.shape().begin() + 2, w.shape().end());
  if (is_shifted(g, taps, how)) return add_spread(g, w, how, size);
  Shape reached = {g.shape(0), w.shape(1) * how.groups};  // by the windows, with their padding
  std::vector<std::pair<int64_t, int64_t>> pads;
  for (size_t i = 0; i < rank; ++i) {
    reached.push_back((g.shape()[2 + i] - 1) * how.stride[i] + how.span(w, i));
    pads.emplace_back(-how.padding[i], size[i] + how.padding[i] - reached.back());
  }
  const Array x = expand(scalar_like(g, 0), reached),
              columns = matmul(transpose(by_groups(w, how.groups), 1, 2),
                               by_groups(transpose(g, 0, 1), how.groups));
  return padded(vjp({columns_of(x, taps, how)}, {columns}, {x})[0], pads, 0);
}

/// Sums over the batch and its positions of windows times the gradient of y.
Array compose_convolve_weight(const OpCall& c) {
  const size_t rank = c.inputs[0].ndim() - 2;
  const ConvShape how(c, rank);
  const Array &g = c.inputs[1], x = with_padding(c.inputs[0], how);
  const Ints& taps = c.attrs.list("size");
  Shape shape = {g.shape(1), x.shape(1) / how.groups};
  shape.insert(shape.end(), taps.begin(), taps.end());
  // Only windows that g has: there may be room for more.
  Array image = x;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t span = how.dilation[i] * (taps[i] - 1) + 1;
    image = slice_dim(image, static_cast<int64_t>(2 + i), 0, (g.shape()[2 + i] - 1) * how.stride[i] + span);
  }
  const Array rows = by_groups(transpose(g, 0, 1), how.groups);
  return reshape(matmul(rows, transpose(columns_of(image, taps, how), 1, 2)), shape);
}

/// y of x and w, as far as g goes: an output padding leaves room for windows that g does not have.
Array convolve_like(const Array& x, const Array& w, const ConvShape& how, const Array& g) {
  Array y = call("convolve", {x, w}, how.attrs());
  for (size_t d = 2; d < y.ndim(); ++d)
    if (y.shape()[d] > g.shape()[d]) y = slice_dim(y, static_cast<int64_t>(d), 0, g.shape()[d]);
  return y;
}

Op linear_in_both(const char* name, bool has_size, Infer infer, Array (*compose)(const OpCall&),
                  const Gradient& gradient) {
  Op op{
      .name = name,
      .kind = OpKind::primitive,
      .min_inputs = 2,
      .max_inputs = 2,
      .attrs = {{"stride", {}, true}, {"padding", {}, true}, {"dilation", {}, true}, {"groups", int64_t{1}}},
      .infer =
          [infer = std::move(infer)](const OpCall& c) {
            for (const Array& input : c.inputs)
              if (input.dtype() != DType::f32 || input.ndim() < 3 || input.ndim() > 5 ||
                  input.ndim() != c.inputs[0].ndim())
                fail(ErrorKind::invalid, "[{}] takes two f32 arrays of 3 to 5 dims, not {} {}", c.op.name,
                     name_of(input.dtype()), to_string(input.shape()));
            return infer(c);
          },
      .compose = [compose, gradient](const OpCall& c) -> std::vector<Array> {
        // Its gradient is the row's: that of shifted copies and windows would be one pass for each tap.
        const ArrayFunction forward = [&](const std::vector<Array>& inputs) {
          const OpCall call{c.op, inputs, c.attrs, c.device};
          const bool empty = inputs[0].size() == 0 || inputs[1].size() == 0;  // sums of nothing
          return empty ? expand(scalar_like(inputs[0], 0), c.op.infer(call)[0].shape) : compose(call);
        };
        const CustomVjp backward = [gradient, &op = c.op, attrs = c.attrs, device = c.device](
                                       const std::vector<Array>& inputs, const Array& y, const Array& g) {
          const std::vector<Array> outputs = {y}, output_grads = {g};
          return gradient(GradCall{{op, inputs, attrs, device}, outputs, output_grads});
        };
        return {custom_gradient(forward, backward)(c.inputs)};
      },
      .gradient = gradient};
  if (has_size) op.attrs.push_back({"size", {}, true});
  return op;
}

std::vector<Op> convolution_primitives() {
  const auto shape_of = [](int64_t first, int64_t second, const Ints& spatial) -> std::vector<OutputSpec> {
    Shape shape = {first, second};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    return {{shape, DType::f32}};
  };
  const auto how_of = [](const OpCall& c) { return ConvShape(c, c.inputs[0].ndim() - 2); };
  return {
      linear_in_both(
          "convolve", false,
          [=](const OpCall& c) {
            const ConvShape how = how_of(c);
            const Array &x = c.inputs[0], &w = c.inputs[1];
            Ints positions;
            for (size_t i = 0; i < how.stride.size(); ++i)
              positions.push_back((x.shape()[2 + i] + 2 * how.padding[i] - how.span(w, i)) / how.stride[i] +
                                  1);
            return shape_of(x.shape(0), w.shape(0), positions);
          },
          compose_convolve,
          [=](const GradCall& c) -> std::vector<Array> {
            const ConvShape how = how_of(c);
            const Array &x = c.inputs[0], &w = c.inputs[1], &g = c.output_grads[0];
            return {call("convolve_input", {g, w}, how.attrs_with_size(x.shape())),
                    call("convolve_weight", {x, g}, how.attrs_with_size(w.shape()))};
          }),
      linear_in_both(
          "convolve_input", true,
          [=](const OpCall& c) {
            return shape_of(c.inputs[0].shape(0), c.inputs[1].shape(1) * how_of(c).groups,
                            c.attrs.list("size"));
          },
          compose_convolve_input,
          [=](const GradCall& c) -> std::vector<Array> {
            const ConvShape how = how_of(c);
            const Array &g = c.inputs[0], &w = c.inputs[1], &x = c.output_grads[0];
            return {convolve_like(x, w, how, g),
                    call("convolve_weight", {x, g}, how.attrs_with_size(w.shape()))};
          }),
      linear_in_both(
          "convolve_weight", true,
          [=](const OpCall& c) {
            return shape_of(c.inputs[1].shape(1), c.inputs[0].shape(1) / how_of(c).groups,
                            c.attrs.list("size"));
          },
          compose_convolve_weight,
          [=](const GradCall& c) -> std::vector<Array> {
            const ConvShape how = how_of(c);
            const Array &x = c.inputs[0], &g = c.inputs[1], &w = c.output_grads[0];
            return {call("convolve_input", {g, w}, how.attrs_with_size(x.shape())),
                    convolve_like(x, w, how, g)};
          }),
  };
}

/// Checks what conv and conv_transpose have in common.
ConvShape conv_shape(const OpCall& c, size_t rank, size_t weight_channels_dim) {
  const Array &x = c.inputs[0], &w = c.inputs[1];
  ConvShape how(c, rank);
  if (x.ndim() != rank + 2 || w.ndim() != rank + 2)
    fail(ErrorKind::invalid, "[{}] x {} and w {} need {} spatial dims", c.op.name, to_string(x.shape()),
         to_string(w.shape()), rank);
  const int64_t groups = how.groups, per_group = weight_channels_dim == 1 ? groups : 1;
  if (groups < 1 || x.shape(1) != w.shape()[weight_channels_dim] * per_group || w.shape(0) % groups != 0)
    fail(ErrorKind::invalid, "[{}] x {} and w {} do not go together in {} groups", c.op.name,
         to_string(x.shape()), to_string(w.shape()), groups);
  for (size_t i = 0; i < rank; ++i)
    if (how.stride[i] < 1 || how.dilation[i] < 1)
      fail(ErrorKind::invalid, "[{}] stride and dilation are at least 1", c.op.name);
  return how;
}

Array with_bias(const OpCall& c, const Array& y, size_t rank) {
  const bool biased = c.inputs.size() > 2 && c.inputs[2];
  return as(biased ? y + along(f32(c.inputs[2]), -static_cast<int64_t>(rank) - 1) : y, c.inputs[0].dtype());
}

Array conv(const OpCall& c, size_t rank) {
  const ConvShape how = conv_shape(c, rank, 1);
  const Array &x = c.inputs[0], &w = c.inputs[1];
  for (size_t i = 0; i < rank; ++i)
    if (const int64_t size = x.shape()[2 + i] + 2 * how.padding[i];
        w.shape()[2 + i] < 1 || how.span(w, i) > size)
      fail(ErrorKind::invalid, "[{}] the kernel spans {} of spatial dim {}, which has {} with its padding",
           c.op.name, how.span(w, i), i, size);
  return with_bias(c, call("convolve", {f32(x), f32(w)}, how.attrs()), rank);
}

/// The gradient of a convolution: w (ci, co/groups, ..) are the weights of one from the output to the input.
Array conv_transpose(const OpCall& c, size_t rank) {
  const ConvShape how = conv_shape(c, rank, 0);
  const Array &x = c.inputs[0], &w = c.inputs[1];
  const Ints extra = per_dim(c, "output_padding", rank, 0);
  Shape output = x.shape();
  for (size_t i = 0; i < rank; ++i) {
    int64_t& size = output[2 + i];
    size = (size - 1) * how.stride[i] - 2 * how.padding[i] + how.span(w, i) + extra[i];
    if (w.shape()[2 + i] < 1 || size < 1)
      fail(ErrorKind::invalid, "[{}] spatial dim {} of the output would be {}", c.op.name, i, size);
  }
  return with_bias(c, call("convolve_input", {f32(x), f32(w)}, how.attrs_with_size(output)), rank);
}

// ---- Pooling. -----------------------------------------------------------------------------------

/// Windows along one dim of a pooling op.
struct Pool {
  int64_t kernel, stride, padding, dilation, size, count;
  int64_t span() const { return dilation * (kernel - 1) + 1; }
  /// Padding on the right that makes `count` windows fit exactly; negative: elements that no window reaches.
  int64_t after() const { return (count - 1) * stride + span() - size - padding; }
};

std::vector<Pool> pools(const OpCall& c, size_t rank) {
  const Array& x = c.inputs[0];
  if (x.ndim() < rank)
    fail(ErrorKind::invalid, "[{}] takes {} spatial dims, not {}", c.op.name, rank, to_string(x.shape()));
  const Ints kernel = per_dim(c, "kernel", rank, 1),
             stride = c.attrs.has("stride") ? per_dim(c, "stride", rank, 1) : kernel;
  const Ints padding = per_dim(c, "padding", rank, 0), dilation = per_dim(c, "dilation", rank, 1);
  std::vector<Pool> result;
  for (size_t i = 0; i < rank; ++i) {
    Pool p{kernel[i], stride[i], padding[i], dilation[i], x.shape()[x.ndim() - rank + i], 0};
    if (p.kernel < 1 || p.stride < 1 || p.dilation < 1 || p.padding < 0 || 2 * p.padding > p.span())
      fail(ErrorKind::invalid,
           "[{}] kernel {}, stride {}, dilation {} and padding {} (at most half the window) do not go "
           "together",
           c.op.name, p.kernel, p.stride, p.dilation, p.padding);
    const int64_t free = p.size + 2 * p.padding - p.span();
    const bool ceil = c.attrs.flag("ceil_mode");
    if (free < 0 && !(ceil && free + p.stride > 0))
      fail(ErrorKind::invalid, "[{}] a window spans {}, the padded dim has {}", c.op.name, p.span(),
           p.size + 2 * p.padding);
    p.count = (free + (ceil ? p.stride - 1 : 0)) / p.stride + 1;
    if (ceil && (p.count - 1) * p.stride >= p.size + p.padding)
      --p.count;  // it would start in the right padding
    result.push_back(p);
  }
  return result;
}

/// x padded with `value` for windows that fit exactly, reduced along each spatial dim in turn, last first.
Array pooled(Array x, const std::vector<Pool>& dims, double value,
             const std::function<Array(const Array&)>& reduce) {
  std::vector<std::pair<int64_t, int64_t>> pads;
  for (const Pool& p : dims) pads.emplace_back(p.padding, p.after());
  x = padded(x, pads, value);
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t dim = static_cast<int64_t>(x.ndim() - dims.size() + i);
    x = reduce(windows(x, dim, dims[i].kernel, dims[i].stride, dims[i].dilation));
  }
  return x;
}

/// By argmax and a lookup, not by `max`: at a tie the first element gets all of the gradient, as in torch.
Array max_pool(const OpCall& c, size_t rank) {
  return pooled(c.inputs[0], pools(c, rank), -std::numeric_limits<double>::infinity(), [](const Array& x) {
    const Array best = call("argmax", {x}, {{"dim", int64_t{-1}}, {"keepdim", true}});
    return squeeze(call("gather", {x, best}, {{"dim", int64_t{-1}}}), -1);
  });
}

Array avg_pool(const OpCall& c, size_t rank) {
  const std::vector<Pool> dims = pools(c, rank);
  Array y = pooled(f32(c.inputs[0]), dims, 0, [](const Array& x) { return sum(x, {-1}); });
  for (size_t i = 0; i < rank; ++i) {
    const Pool& p = dims[i];
    std::vector<float> lengths;  // of each window, clipped
    for (int64_t w = 0; w < p.count; ++w) {
      const int64_t start = w * p.stride - p.padding;
      const int64_t length = c.attrs.flag("count_include_pad")
                                 ? std::min(start + p.kernel, p.size + p.padding) - start
                                 : std::min(start + p.kernel, p.size) - std::max<int64_t>(start, 0);
      lengths.push_back(static_cast<float>(length));
    }
    const bool alike = std::ranges::adjacent_find(lengths, std::not_equal_to<>()) == lengths.end();
    y = alike ? y / static_cast<double>(lengths.at(0))
              : y / along(Array::from_vector(lengths, {p.count}, c.device),
                          static_cast<int64_t>(i) - static_cast<int64_t>(rank));
  }
  return as(y, c.inputs[0].dtype());
}

/// The mean over windows floor(i n/o) .. ceil((i+1) n/o) of a dim (negative), made one of `o`.
Array adaptive_mean(const Array& x, int64_t dim, int64_t o, const Device& device) {
  const int64_t n = x.shape(dim), d = static_cast<int64_t>(x.ndim()) + dim;
  if (n == o) return x;
  Shape split = x.shape();
  split[static_cast<size_t>(d)] = o;
  if (n > 0 && n % o == 0) {
    split.insert(split.begin() + d + 1, n / o);
    return mean(reshape(x, split), {d + 1});
  }
  const int64_t longest = n / o + 2;
  Ints sources;
  std::vector<float> lengths, used;  // (o), (o, longest)
  for (int64_t i = 0; i < o; ++i) {
    const int64_t start = i * n / o, stop = ((i + 1) * n + o - 1) / o;
    lengths.push_back(static_cast<float>(stop - start));
    for (int64_t j = 0; j < longest; ++j) {
      sources.push_back(std::min(start + j, n - 1));
      used.push_back(start + j < stop ? 1.0f : 0.0f);
    }
  }
  split.insert(split.begin() + d + 1, longest);
  Shape mask(split.size() - static_cast<size_t>(d), 1);  // (o, longest, 1..)
  mask[0] = o, mask[1] = longest;
  const Array taken = reshape(select(x, d, sources, device), split);
  const Array in_window = as(reshape(Array::from_vector(used, {o, longest}, device), mask), DType::boolean);
  return sum(where(in_window, taken, scalar_like(taken, 0)), {d + 1}) /
         along(Array::from_vector(lengths, {o}, device), dim);
}

/// The attribute that gives the sizes of the last dims; checked.
Ints target_sizes(const OpCall& c, std::string_view name, size_t rank) {
  const Array& x = c.inputs[0];
  if (x.ndim() < rank)
    fail(ErrorKind::invalid, "[{}] takes {} spatial dims, not {}", c.op.name, rank, to_string(x.shape()));
  const Ints sizes = per_dim(c, name, rank, 0);
  for (size_t i = 0; i < rank; ++i)
    if (sizes[i] < 1 || sizes[i] > std::numeric_limits<int32_t>::max() || x.shape()[x.ndim() - rank + i] < 1)
      fail(ErrorKind::invalid, "[{}] {} cannot be resized to ({})", c.op.name, to_string(x.shape()),
           fmt::join(sizes, ","));
  return sizes;
}

Array adaptive_avg_pool2d(const OpCall& c) {
  const Ints size = target_sizes(c, "output_size", 2);
  const Array rows = adaptive_mean(f32(c.inputs[0]), -2, size[0], c.device);
  return as(adaptive_mean(rows, -1, size[1], c.device), c.inputs[0].dtype());
}

// ---- Resampling. --------------------------------------------------------------------------------

Array upsample_nearest(const OpCall& c, size_t rank) {
  const Ints size = target_sizes(c, "size", rank);
  Array x = widened(c.inputs[0]);  // for the gradient, which is summed dim by dim
  for (size_t i = 0; i < rank; ++i) {
    const int64_t dim = static_cast<int64_t>(x.ndim() - rank + i), n = x.shape(dim);
    if (n == size[i]) continue;
    Ints sources;
    for (int64_t o = 0; o < size[i]; ++o) sources.push_back(o * n / size[i]);
    x = select(x, dim, sources, c.device);
  }
  return as(x, c.inputs[0].dtype());
}

/// Linear interpolation along a dim (negative), to size o.
Array interpolated(const Array& x, int64_t dim, int64_t o, bool align_corners, const Device& device) {
  const int64_t n = x.shape(dim);
  if (n == o) return x;
  Ints lower, upper;
  std::vector<float> weights;  // of the upper neighbour
  for (int64_t i = 0; i < o; ++i) {
    const double at = static_cast<double>(i), from = static_cast<double>(n), to = static_cast<double>(o);
    const double source = align_corners ? (o > 1 ? at * (from - 1) / (to - 1) : 0)
                                        : std::max((at + 0.5) * from / to - 0.5, 0.0);
    const int64_t below = std::min(static_cast<int64_t>(source), n - 1);
    lower.push_back(below);
    upper.push_back(std::min(below + 1, n - 1));
    weights.push_back(static_cast<float>(source - static_cast<double>(below)));
  }
  const Array weight = along(Array::from_vector(weights, {o}, device), dim);
  const int64_t d = static_cast<int64_t>(x.ndim()) + dim;
  return select(x, d, lower, device) * (1.0 - weight) + select(x, d, upper, device) * weight;
}

Array upsample_bilinear2d(const OpCall& c) {
  const Ints size = target_sizes(c, "size", 2);
  const bool corners = c.attrs.flag("align_corners");
  const Array rows = interpolated(f32(c.inputs[0]), -2, size[0], corners, c.device);
  return as(interpolated(rows, -1, size[1], corners, c.device), c.inputs[0].dtype());
}

/// A row whose compose function also takes the number of spatial dims.
Op spatial(const char* name, size_t rank, int max_inputs, std::vector<AttrSpec> attrs,
           Array (*f)(const OpCall&, size_t)) {
  return composed1(name, std::min(max_inputs, 2), max_inputs, std::move(attrs),
                   [f, rank](const OpCall& c) { return f(c, rank); });
}

}  // namespace

std::vector<Op> conv_ops() {
  const std::vector<AttrSpec> conv_attrs = {{"stride"}, {"padding"}, {"dilation"}, {"groups", int64_t{1}}};
  const std::vector<AttrSpec> transpose_attrs = {
      {"stride"}, {"padding"}, {"dilation"}, {"groups", int64_t{1}}, {"output_padding"}};
  const std::vector<AttrSpec> max_attrs = {
      {"kernel", {}, true}, {"stride"}, {"padding"}, {"dilation"}, {"ceil_mode", false}};
  const std::vector<AttrSpec> avg_attrs = {
      {"kernel", {}, true}, {"stride"}, {"padding"}, {"ceil_mode", false}, {"count_include_pad", true}};
  const std::vector<AttrSpec> size = {{"size", {}, true}};
  std::vector<Op> ops = {
      spatial("conv1d", 1, 3, conv_attrs, conv),
      spatial("conv2d", 2, 3, conv_attrs, conv),
      spatial("conv3d", 3, 3, conv_attrs, conv),
      spatial("conv_transpose1d", 1, 3, transpose_attrs, conv_transpose),
      spatial("conv_transpose2d", 2, 3, transpose_attrs, conv_transpose),
      spatial("max_pool1d", 1, 1, max_attrs, max_pool),
      spatial("max_pool2d", 2, 1, max_attrs, max_pool),
      spatial("avg_pool1d", 1, 1, avg_attrs, avg_pool),
      spatial("avg_pool2d", 2, 1, avg_attrs, avg_pool),
      composed1("adaptive_avg_pool2d", 1, 1, {{"output_size", {}, true}}, adaptive_avg_pool2d),
      spatial("upsample_nearest1d", 1, 1, size, upsample_nearest),
      spatial("upsample_nearest2d", 2, 1, size, upsample_nearest),
      composed1("upsample_bilinear2d", 1, 1, {{"size", {}, true}, {"align_corners", false}},
                upsample_bilinear2d),
  };
  for (Op& op : convolution_primitives()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace weft
