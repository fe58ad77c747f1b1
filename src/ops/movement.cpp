// Ops that move elements and compute nothing. Most are views.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/shorthand.h"
#include "ops/slice.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;

Op view(std::string name, std::vector<AttrSpec> attrs, Infer infer, ViewLayout layout, Gradient gradient) {
  return {.name = std::move(name),
          .kind = OpKind::view,
          .attrs = std::move(attrs),
          .infer = std::move(infer),
          .gradient = std::move(gradient),
          .only_moves = true,
          .layout = std::move(layout)};
}

Op primitive(std::string name, int min_inputs, int max_inputs, std::vector<AttrSpec> attrs, Infer infer,
             Gradient gradient) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .attrs = std::move(attrs),
          .infer = std::move(infer),
          .gradient = std::move(gradient),
          .only_moves = true};
}

Shape reshape_target(const OpCall& c) {
  Shape to = c.attrs.list("shape");
  const int64_t count = c.inputs[0].size();
  int64_t known = 1;
  int64_t* inferred = nullptr;
  for (int64_t& size : to) {
    if (size == -1 && !inferred)
      inferred = &size;
    else if (size < 0)
      fail(ErrorKind::invalid, "[reshape] shape {} has a negative size", to_string(to));
    else
      known *= size;
  }
  if (inferred) *inferred = known ? count / known : 0;
  if (element_count(to) != count)
    fail(ErrorKind::invalid, "[reshape] {} elements of shape {} do not fit into {}", count,
         to_string(c.inputs[0].shape()), to_string(c.attrs.list("shape")));
  return to;
}

Ints permutation(const OpCall& c) {
  const size_t rank = c.inputs[0].ndim();
  Ints dims;
  for (int64_t d : c.attrs.list("dims")) dims.push_back(normalize_dim(c.op.name, d, rank));
  Ints sorted = dims;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted.size() != rank || sorted[i] != static_cast<int64_t>(i))
      fail(ErrorKind::invalid, "[permute] dims ({}) do not name each of {} dims once", fmt::join(dims, ","),
           rank);
  if (dims.size() != rank)
    fail(ErrorKind::invalid, "[permute] {} dims for an array of {}", dims.size(), rank);
  return dims;
}

Shape expand_target(const OpCall& c) {
  Shape to = c.attrs.list("shape");
  const Shape& from = c.inputs[0].shape();
  if (to.size() < from.size())
    fail(ErrorKind::invalid, "[expand] {} to {}: dims cannot be dropped", to_string(from), to_string(to));
  const size_t added = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t& size = to[added + i];
    if (size == -1) size = from[i];
    if (size != from[i] && from[i] != 1)
      fail(ErrorKind::invalid, "[expand] {} to {}: only sizes of 1 expand", to_string(from), to_string(to));
  }
  if (std::ranges::any_of(to, [](int64_t size) { return size < 0; }))
    fail(ErrorKind::invalid, "[expand] {} to {}: -1 keeps a dim that is there, no size is below 0",
         to_string(from), to_string(c.attrs.list("shape")));
  return to;
}

/// Puts a gradient of x[start::step] back: zeros in between, around, and turned round for a negative step.
Array unslice(const Array& grad, size_t dim, const SliceRange& range, int64_t size) {
  const auto d = static_cast<int64_t>(dim);
  Array g = grad;
  if (range.count == 0) return pad_dim(g, d, 0, size);
  const int64_t step = std::abs(range.step);
  if (range.step < 0) g = slice_dim(g, d, -1, kNone, -1);
  const int64_t first = range.step > 0 ? range.start : range.start + (range.count - 1) * range.step;
  if (step > 1) {
    Shape spread = g.shape();
    g = pad_dim(unsqueeze(g, d + 1), d + 1, 0, step - 1);
    spread[dim] *= step;
    g = reshape(g, spread);
  }
  const int64_t length = g.shape()[dim];
  return pad_dim(g, d, first,
                 size - first - length);  // a negative pad crops the zeros behind the last element
}

std::vector<Op> view_rows() {
  const auto same_spec = [](const OpCall& c) -> Specs {
    return {{c.inputs[0].shape(), c.inputs[0].dtype()}};
  };
  const auto same_layout = [](const Attrs&, const Layout& input, const Shape&) { return input; };
  Op stop = view("stop_gradient", {}, same_spec, same_layout, {});
  stop.stops_gradient = true;
  // Input 0 as it is; the others are what its node's own gradient is for.
  Op custom = view("custom_gradient", {}, same_spec, same_layout, {});
  custom.max_inputs = -1;
  return {
      view(
          "reshape", {{"shape", {}, true}},
          [](const OpCall& c) -> Specs { return {{reshape_target(c), c.inputs[0].dtype()}}; },
          [](const Attrs&, const Layout& input, const Shape& output) { return input.reshaped(output); },
          [](const GradCall& c) -> std::vector<Array> {
            return {reshape(c.output_grads[0], c.inputs[0].shape())};
          }),
      view("alias", {}, same_spec, same_layout,
           [](const GradCall& c) -> std::vector<Array> { return {c.output_grads[0]}; }),
      stop,
      custom,
      view(
          "permute", {{"dims", {}, true}},
          [](const OpCall& c) -> Specs {
            Shape shape;
            for (int64_t d : permutation(c)) shape.push_back(c.inputs[0].shape(d));
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const Attrs& attrs, const Layout& input, const Shape&) {
            Ints dims;
            for (int64_t d : attrs.list("dims"))
              dims.push_back(normalize_dim("permute", d, input.shape.size()));
            return input.permuted(dims);
          },
          [](const GradCall& c) -> std::vector<Array> {
            const Ints dims = permutation(c);
            Ints inverse(dims.size());
            for (size_t i = 0; i < dims.size(); ++i)
              inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
            return {permute(c.output_grads[0], inverse)};
          }),
      view(
          "expand", {{"shape", {}, true}},
          [](const OpCall& c) -> Specs { return {{expand_target(c), c.inputs[0].dtype()}}; },
          [](const Attrs&, const Layout& input, const Shape& output) { return input.expanded(output); },
          [](const GradCall& c) -> std::vector<Array> {
            return {unbroadcast(c.output_grads[0], c.inputs[0].shape())};
          }),
      view(
          "slice", {{"starts", {}, true}, {"stops", {}, true}, {"steps", {}}},
          [](const OpCall& c) -> Specs {
            Shape shape = c.inputs[0].shape();
            const std::vector<SliceRange> ranges = slice_ranges(c.attrs, shape);
            for (size_t i = 0; i < ranges.size(); ++i) shape[i] = ranges[i].count;
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const Attrs& attrs, const Layout& input, const Shape& output) {
            Ints starts(output.size(), 0), steps(output.size(), 1);
            const std::vector<SliceRange> ranges = slice_ranges(attrs, input.shape);
            for (size_t i = 0; i < ranges.size(); ++i) starts[i] = ranges[i].start, steps[i] = ranges[i].step;
            return input.sliced(starts, steps, output);
          },
          [](const GradCall& c) -> std::vector<Array> {
            Array g = c.output_grads[0];
            const Shape& shape = c.inputs[0].shape();
            const std::vector<SliceRange> ranges = slice_ranges(c.attrs, shape);
            for (size_t i = 0; i < ranges.size(); ++i)
              if (ranges[i].count != shape[i] || ranges[i].step != 1) g = unslice(g, i, ranges[i], shape[i]);
            return {g};
          }),
      view(
          "unfold", {{"dim", {}, true}, {"size", {}, true}, {"step", {}, true}},
          [](const OpCall& c) -> Specs {
            Shape shape = c.inputs[0].shape();
            const auto d = static_cast<size_t>(normalize_dim("unfold", c.attrs.integer("dim"), shape.size()));
            const int64_t size = c.attrs.integer("size"), step = c.attrs.integer("step");
            if (size < 0 || step < 1 || size > shape[d])
              fail(ErrorKind::invalid, "[unfold] windows of {} every {} in a dim of {}", size, step,
                   shape[d]);
            shape[d] = (shape[d] - size) / step + 1;
            shape.push_back(size);
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const Attrs& attrs, const Layout& input, const Shape& output) {
            const auto d =
                static_cast<size_t>(normalize_dim("unfold", attrs.integer("dim"), input.shape.size()));
            Layout layout{output, input.strides, input.offset};
            layout.strides.push_back(input.strides[d]);
            layout.strides[d] *= attrs.integer("step");
            return layout;
          },
          [](const GradCall& c) -> std::vector<Array> {
            const Shape& shape = c.inputs[0].shape();
            const int64_t d = normalize_dim("unfold", c.attrs.integer("dim"), shape.size()),
                          step = c.attrs.integer("step");
            const Array g = widened(c.output_grads[0]);
            Array total = zeros_like(c.inputs[0]);
            for (int64_t w = 0; w < c.attrs.integer("size"); ++w) {
              const Array one = squeeze(slice_dim(g, -1, w, w + 1), -1);
              total = total + unslice(one, static_cast<size_t>(d), {w, step, one.shape(d)},
                                      shape[static_cast<size_t>(d)]);
            }
            return {total};
          }),
      view(
          "diagonal", {{"offset", int64_t{0}}, {"dim1", int64_t{0}}, {"dim2", int64_t{1}}},
          [](const OpCall& c) -> Specs {
            const Shape& from = c.inputs[0].shape();
            const int64_t d1 = normalize_dim("diagonal", c.attrs.integer("dim1"), from.size()),
                          d2 = normalize_dim("diagonal", c.attrs.integer("dim2"), from.size());
            if (d1 == d2) fail(ErrorKind::invalid, "[diagonal] dim1 and dim2 are the same");
            const int64_t offset = c.attrs.integer("offset"), rows = from[static_cast<size_t>(d1)],
                          columns = from[static_cast<size_t>(d2)];
            Shape shape;
            for (size_t i = 0; i < from.size(); ++i)
              if (static_cast<int64_t>(i) != d1 && static_cast<int64_t>(i) != d2) shape.push_back(from[i]);
            shape.push_back(std::max<int64_t>(
                0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns)));
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const Attrs& attrs, const Layout& input, const Shape& output) {
            const size_t rank = input.shape.size();
            const auto d1 = static_cast<size_t>(normalize_dim("diagonal", attrs.integer("dim1"), rank)),
                       d2 = static_cast<size_t>(normalize_dim("diagonal", attrs.integer("dim2"), rank));
            const int64_t offset = attrs.integer("offset");
            Layout layout{output, {}, input.offset};
            for (size_t i = 0; i < rank; ++i)
              if (i != d1 && i != d2) layout.strides.push_back(input.strides[i]);
            layout.strides.push_back(input.strides[d1] + input.strides[d2]);
            if (output.back() > 0)
              layout.offset += offset >= 0 ? offset * input.strides[d2] : -offset * input.strides[d1];
            return layout;
          },
          [](const GradCall& c) -> std::vector<Array> {
            const Shape& shape = c.inputs[0].shape();
            const int64_t d1 = normalize_dim("diagonal", c.attrs.integer("dim1"), shape.size()),
                          d2 = normalize_dim("diagonal", c.attrs.integer("dim2"), shape.size());
            const int64_t offset = c.attrs.integer("offset"), rows = c.inputs[0].shape(d1),
                          columns = c.inputs[0].shape(d2);
            // (.., k) -> (.., rows, columns): the k-th value in row k - min(offset, 0), where column - row =
            // offset.
            const int64_t skip = std::max<int64_t>(0, -offset), length = c.output_grads[0].shape(-1);
            Array g = unsqueeze(pad_dim(c.output_grads[0], -1, skip, rows - skip - length), -1);
            const Array row = unsqueeze(iota(rows, g), 1), column = unsqueeze(iota(columns, g), 0);
            g = where(eq(column - row, scalar_like(row, static_cast<double>(offset))), g, scalar_like(g, 0));
            Ints dims;  // back to where the two dims were
            int64_t next = 0;
            for (size_t i = 0; i < shape.size(); ++i)
              dims.push_back(static_cast<int64_t>(i) == d1   ? static_cast<int64_t>(shape.size()) - 2
                             : static_cast<int64_t>(i) == d2 ? static_cast<int64_t>(shape.size()) - 1
                                                             : next++);
            return {permute(g, dims)};
          }),
  };
}

std::vector<Op> kernel_rows() {
  std::vector<Op> rows = {
      primitive(
          "pad_constant", 1, 1, {{"lo", {}, true}, {"hi", {}, true}, {"value", 0.0}},
          [](const OpCall& c) -> Specs {
            Shape shape = c.inputs[0].shape();
            for (size_t i = 0; i < shape.size(); ++i) {
              shape[i] += c.attrs.list("lo")[i] + c.attrs.list("hi")[i];
              if (shape[i] < 0)
                fail(ErrorKind::invalid, "[pad] dim {} of size {} cannot be cropped to {}", i,
                     c.inputs[0].shape()[i], shape[i]);
            }
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const GradCall& c) -> std::vector<Array> {
            Ints lo = c.attrs.list("lo"), hi = c.attrs.list("hi");
            for (int64_t& n : lo) n = -n;
            for (int64_t& n : hi) n = -n;
            return {call("pad_constant", {c.output_grads[0]}, {{"lo", lo}, {"hi", hi}})};
          }),
      primitive(
          "cat", 1, -1, {{"dim", {}, true}},
          [](const OpCall& c) -> Specs {
            Shape shape = c.inputs[0].shape();
            const auto d = static_cast<size_t>(normalize_dim("cat", c.attrs.integer("dim"), shape.size()));
            shape[d] = 0;
            for (const Array& x : c.inputs) {
              Shape other = x.shape();
              if (other.size() != shape.size())
                fail(ErrorKind::invalid, "[cat] shapes {} and {} have different numbers of dims",
                     to_string(c.inputs[0].shape()), to_string(x.shape()));
              shape[d] += other[d];
              other[d] = shape[d];
              if (other != shape)
                fail(ErrorKind::invalid, "[cat] shapes {} and {} differ outside of dim {}",
                     to_string(c.inputs[0].shape()), to_string(x.shape()), d);
            }
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const GradCall& c) -> std::vector<Array> {
            const int64_t d = normalize_dim("cat", c.attrs.integer("dim"), c.inputs[0].ndim());
            std::vector<Array> grads;
            int64_t at = 0;
            for (const Array& x : c.inputs) {
              grads.push_back(slice_dim(c.output_grads[0], d, at, at + x.shape(d)));
              at += x.shape(d);
            }
            return grads;
          }),
  };
  rows.back().promotes_from = 0;
  return rows;
}

std::vector<Op> composed_rows() {
  return {
      composed1(
          "transpose", 1, 1, {{"dim0", {}, true}, {"dim1", {}, true}},
          [](const OpCall& c) {
            Ints dims(c.inputs[0].ndim());
            std::iota(dims.begin(), dims.end(), 0);
            if (dims.empty()) return c.inputs[0];
            std::swap(
                dims[static_cast<size_t>(normalize_dim("transpose", c.attrs.integer("dim0"), dims.size()))],
                dims[static_cast<size_t>(normalize_dim("transpose", c.attrs.integer("dim1"), dims.size()))]);
            return permute(c.inputs[0], dims);
          }),
      composed1("squeeze", 1, 1, {{"dim", {}, true}},
                [](const OpCall& c) {
                  Shape shape = c.inputs[0].shape();
                  const int64_t d =
                      normalize_dim("squeeze", c.attrs.integer("dim"), std::max<size_t>(shape.size(), 1));
                  if (!shape.empty() && shape[static_cast<size_t>(d)] == 1) shape.erase(shape.begin() + d);
                  return reshape(c.inputs[0], shape);
                }),
      composed1("unsqueeze", 1, 1, {{"dim", {}, true}},
                [](const OpCall& c) {
                  Shape shape = c.inputs[0].shape();
                  shape.insert(
                      shape.begin() + normalize_dim("unsqueeze", c.attrs.integer("dim"), shape.size() + 1),
                      1);
                  return reshape(c.inputs[0], shape);
                }),
  };
}

}  // namespace

std::vector<SliceRange> slice_ranges(const Attrs& attrs, const Shape& shape) {
  const Ints &starts = attrs.list("starts"), &stops = attrs.list("stops");
  const Ints steps = attrs.has("steps") ? attrs.list("steps") : Ints(starts.size(), 1);
  if (starts.size() != stops.size() || starts.size() != steps.size() || starts.size() > shape.size())
    fail(ErrorKind::invalid, "[slice] {} starts, {} stops and {} steps for shape {}", starts.size(),
         stops.size(), steps.size(), to_string(shape));
  std::vector<SliceRange> ranges;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t n = shape[i], step = steps[i] == kNone ? 1 : steps[i];
    if (step == 0) fail(ErrorKind::invalid, "[slice] the step of dim {} is 0", i);
    // As Python: bounds from the end, clamped to what the direction can reach.
    const auto bound = [&](int64_t value, int64_t none) {
      if (value == kNone) return none;
      if (value < 0) value += n;
      return std::clamp<int64_t>(value, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    };
    const int64_t start = bound(starts[i], step > 0 ? 0 : n - 1), stop = bound(stops[i], step > 0 ? n : -1);
    const int64_t distance = step > 0 ? stop - start : start - stop;
    ranges.push_back({start, step, distance > 0 ? (distance + std::abs(step) - 1) / std::abs(step) : 0});
  }
  return ranges;
}

std::vector<Op> movement_ops() {
  std::vector<Op> all;
  for (auto family : {view_rows, kernel_rows, composed_rows, moved_rows})
    for (Op& op : family()) all.push_back(std::move(op));
  return all;
}

}  // namespace weft
