// Ops that choose elements by index, and sorting, which makes such indices. What the user calls checks and
// composes; the primitives below it are one kernel each in every backend.
#include <limits>

#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

using Specs = std::vector<OutputSpec>;
using Arrays = std::vector<Array>;

Op primitive(std::string name, int inputs, std::vector<AttrSpec> attrs, Infer infer, Gradient gradient) {
  return {.name = std::move(name),
          .kind = OpKind::primitive,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .attrs = std::move(attrs),
          .infer = std::move(infer),
          .gradient = std::move(gradient)};
}

Array along(std::string_view op, Arrays inputs, int64_t dim) {
  return call(op, std::move(inputs), {{"dim", dim}});
}

OutputSpec like(const Array& x) {
  return {x.shape(), x.dtype()};
}

Specs infer_put_rows(const OpCall& c) {
  const Array &x = c.inputs[0], &idx = c.inputs[1], &src = c.inputs[2];
  const auto tail = [](const Array& a) { return Shape(a.shape().begin() + 1, a.shape().end()); };
  if (x.ndim() == 0 || idx.ndim() != 1 || src.ndim() != x.ndim() || src.shape(0) != idx.size() ||
      tail(src) != tail(x))
    fail(ErrorKind::invalid, "[put_rows] rows {} at {} places do not fit into {}", to_string(src.shape()),
         to_string(idx.shape()), to_string(x.shape()));
  if (idx.dtype() != DType::i32 || src.dtype() != x.dtype())
    fail(ErrorKind::invalid, "[put_rows] {} rows at {} places go into {}", name_of(src.dtype()),
         name_of(idx.dtype()), name_of(x.dtype()));
  if (element_count(tail(x)) * static_cast<int64_t>(size_of(x.dtype())) % 4 != 0)
    fail(ErrorKind::invalid, "[put_rows] rows {} of {} are not whole words of 4 bytes", to_string(tail(x)),
         name_of(x.dtype()));
  return {like(x)};
}

// ---- Primitives. idx is i32, dims are counted from the start.
// ---------------------------------------------------

std::vector<Op> primitive_rows() {
  const std::vector<AttrSpec> dim = {{"dim", {}, true}};
  return {
      // x, idx -> out[..i..] = x[..idx[..i..]..], idx's shape
      primitive(
          "index_gather", 2, dim,
          [](const OpCall& c) -> Specs { return {{c.inputs[1].shape(), c.inputs[0].dtype()}}; },
          [](const GradCall& c) -> Arrays {
            return {along("scatter_accumulate", {zeros_like(c.inputs[0]), c.inputs[1], c.output_grads[0]},
                          c.attrs.integer("dim")),
                    {}};
          }),
      // x, idx (k) -> x with k at dim
      primitive(
          "index_pick", 2, dim,
          [](const OpCall& c) -> Specs {
            Shape shape = c.inputs[0].shape();
            shape[static_cast<size_t>(c.attrs.integer("dim"))] = c.inputs[1].size();
            return {{shape, c.inputs[0].dtype()}};
          },
          [](const GradCall& c) -> Arrays {
            return {along("index_accumulate", {zeros_like(c.inputs[0]), c.inputs[1], c.output_grads[0]},
                          c.attrs.integer("dim")),
                    {}};
          }),
      // x, idx, src of idx's shape -> a copy of x with out[..idx..] = src
      primitive(
          "scatter_write", 3, dim, [](const OpCall& c) -> Specs { return {like(c.inputs[0])}; },
          [](const GradCall& c) -> Arrays {
            const Array &g = c.output_grads[0], &idx = c.inputs[1];
            const int64_t d = c.attrs.integer("dim");
            return {along("scatter_write", {g, idx, zeros_like(c.inputs[2])}, d),
                    {},
                    along("index_gather", {g, idx}, d)};
          }),
      primitive(
          "scatter_accumulate", 3, dim, [](const OpCall& c) -> Specs { return {like(c.inputs[0])}; },
          [](const GradCall& c) -> Arrays {
            return {c.output_grads[0],
                    {},
                    along("index_gather", {c.output_grads[0], c.inputs[1]}, c.attrs.integer("dim"))};
          }),
      // x, idx (k), src (x with k at dim) -> x with slices added
      primitive(
          "index_accumulate", 3, dim, [](const OpCall& c) -> Specs { return {like(c.inputs[0])}; },
          [](const GradCall& c) -> Arrays {
            return {c.output_grads[0],
                    {},
                    along("index_pick", {c.output_grads[0], c.inputs[1]}, c.attrs.integer("dim"))};
          }),
      // x (rows, ..), idx (k), src (k, ..) -> x with rows replaced, in place. Indices differ; those outside
      // are an error on a CPU and left out on a GPU. Rows are whole words.
      {.name = "put_rows",
       .kind = OpKind::primitive,
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_put_rows,
       .gradient = [](const GradCall& c) -> Arrays {
         const Array &g = c.output_grads[0], &idx = c.inputs[1];
         return {call("put_rows", {g, idx, zeros_like(c.inputs[2])}), {}, along("index_pick", {g, idx}, 0)};
       },
       .in_place = true},
      // x -> values, indices
      primitive(
          "sort_pairs", 1, {{"dim", {}, true}, {"descending", false}},
          [](const OpCall& c) -> Specs { return {like(c.inputs[0]), {c.inputs[0].shape(), DType::i32}}; },
          [](const GradCall& c) -> Arrays {
            if (!c.output_grads[0]) return {{}};
            return {along("scatter_write", {zeros_like(c.inputs[0]), c.outputs[1], c.output_grads[0]},
                          c.attrs.integer("dim"))};
          }),
      primitive("search_sorted", 2, {{"right", false}},
                [](const OpCall& c) -> Specs { return {{c.inputs[1].shape(), DType::i32}}; }, {}),
  };
}

// ---- Checks.
// ----------------------------------------------------------------------------------------------------

/// The attribute `dim` from the start. A scalar has a dim 0, as in PyTorch.
int64_t dim_of(const OpCall& c) {
  return normalize_dim(c.op.name, c.attrs.integer("dim"), std::max<size_t>(c.inputs[0].ndim(), 1));
}

void check_index_dtype(const OpCall& c, const Array& idx) {
  if (idx.dtype() != DType::i32)
    fail(ErrorKind::invalid, "[{}] indices are {}, not i32; convert them with to_dtype", c.op.name,
         name_of(idx.dtype()));
}

void check_same_dtype(const OpCall& c, const Array& a, const Array& b) {
  if (a.dtype() != b.dtype())
    fail(ErrorKind::invalid, "[{}] inputs are {} and {}; convert one with to_dtype", c.op.name,
         name_of(a.dtype()), name_of(b.dtype()));
}

/// idx (k), where a scalar is one index.
Array index_list(const OpCall& c) {
  const Array& idx = c.inputs[1];
  check_index_dtype(c, idx);
  if (idx.ndim() > 1)
    fail(ErrorKind::invalid, "[{}] the indices have shape {}, not one dim", c.op.name,
         to_string(idx.shape()));
  return reshape(idx, {idx.size()});
}

/// idx has the rank of x and nowhere but along dim more elements.
void check_index_shape(const OpCall& c, int64_t dim) {
  const Array &x = c.inputs[0], &idx = c.inputs[1];
  check_index_dtype(c, idx);
  bool fits = idx.ndim() == x.ndim();
  for (size_t i = 0; fits && i < x.ndim(); ++i)
    fits = static_cast<int64_t>(i) == dim || idx.shape()[i] <= x.shape()[i];
  if (!fits)
    fail(ErrorKind::invalid, "[{}] indices of shape {} do not fit {} along dim {}", c.op.name,
         to_string(idx.shape()), to_string(x.shape()), dim);
}

// ---- What the user calls.
// ---------------------------------------------------------------------------------------

Array scatter(const OpCall& c, std::string_view kernel) {
  const int64_t dim = dim_of(c);
  const Array &x = c.inputs[0], &idx = c.inputs[1], &src = c.inputs[2];
  check_index_shape(c, dim);
  check_same_dtype(c, x, src);
  bool fits = src.ndim() == idx.ndim();
  for (size_t i = 0; fits && i < idx.ndim(); ++i) fits = idx.shape()[i] <= src.shape()[i];
  if (!fits)
    fail(ErrorKind::invalid, "[{}] src of shape {} is smaller than the indices of shape {}", c.op.name,
         to_string(src.shape()), to_string(idx.shape()));
  const Array used =
      src.shape() == idx.shape()
          ? src
          : call("slice", {src}, {{"starts", Ints(idx.ndim(), 0)}, {"stops", Ints(idx.shape())}});
  return along(kernel, {x, idx, used}, dim);
}

Array index_add(const OpCall& c) {
  const Array &x = c.inputs[0], &src = c.inputs[2], idx = index_list(c);
  const int64_t dim = normalize_dim(c.op.name, c.attrs.integer("dim"), x.ndim());
  check_same_dtype(c, x, src);
  Shape expected = x.shape();
  expected[static_cast<size_t>(dim)] = idx.size();
  if (src.shape() != expected)
    fail(ErrorKind::invalid, "[index_add] src has shape {}, expected {}", to_string(src.shape()),
         to_string(expected));
  return along("index_accumulate", {x, idx, src}, dim);
}

Array embedding_form(const OpCall& c) {
  const Array &w = c.inputs[0], &idx = c.inputs[1];
  check_index_dtype(c, idx);
  if (w.ndim() != 2)
    fail(ErrorKind::invalid, "[embedding] the table has shape {}, expected (rows, columns)",
         to_string(w.shape()));
  Shape shape = idx.shape();
  shape.push_back(w.shape(1));
  return reshape(along("index_pick", {w, reshape(idx, {idx.size()})}, 0), shape);
}

Array one_hot(const OpCall& c) {
  const Array& idx = c.inputs[0];
  const int64_t classes = c.attrs.integer("num_classes");
  check_index_dtype(c, idx);
  if (classes < 1) fail(ErrorKind::invalid, "[one_hot] num_classes is {}", classes);
  return as(eq(unsqueeze(idx, -1), iota(classes, idx)), DType::i32);
}

Arrays sort_form(const OpCall& c) {
  return apply("sort_pairs", {c.inputs[0]}, {{"dim", dim_of(c)}, {"descending", c.attrs.flag("descending")}});
}

constexpr int64_t kRun = 1024;  // elements that a GPU sorts in one dispatch

/// The largest of long lines: of each run of elements first, then of those. A GPU sorts the runs of a line
/// side by side in shared memory. Equal elements stay in their order, and fill comes last.
Arrays largest_of_runs(const Array& x, int64_t k) {
  const int64_t size = x.shape(-1), runs = (size + kRun - 1) / kRun;
  Shape cut(x.shape().begin(), x.shape().end() - 1), flat = cut;
  cut.insert(cut.end(), {runs, kRun});
  flat.push_back(runs * k);
  const Array filled = pad_dim(x, -1, 0, runs * kRun - size, -std::numeric_limits<double>::infinity());
  const Sorted best = topk(reshape(filled, cut), k);
  const Array places = best.indices + unsqueeze(iota(runs, x) * kRun, -1);
  const Sorted all = topk(reshape(best.values, flat), k);
  return {all.values, gather(reshape(places, flat), all.indices, -1)};
}

Arrays topk_form(const OpCall& c) {
  const Array& x = c.inputs[0];
  const int64_t dim = dim_of(c), k = c.attrs.integer("k"), size = x.ndim() ? x.shape(dim) : 1;
  if (k < 0 || k > size) fail(ErrorKind::invalid, "[topk] k is {}, dim {} has {} elements", k, dim, size);
  const bool few = k > 0 && k <= kRun / 4 && size > 4 * kRun;
  if (few && dim + 1 == static_cast<int64_t>(x.ndim()) && c.attrs.flag("largest") && is_float(x.dtype()))
    return largest_of_runs(x, k);
  Arrays pairs = apply("sort_pairs", {x}, {{"dim", dim}, {"descending", c.attrs.flag("largest")}});
  if (k < size)
    for (Array& part : pairs) part = slice_dim(part, dim, 0, k);
  return pairs;
}

Array searchsorted(const OpCall& c) {
  const Array &sorted = c.inputs[0], &values = c.inputs[1];
  check_same_dtype(c, sorted, values);
  const Shape &rows = sorted.shape(), &wanted = values.shape();
  if (rows.empty() || (rows.size() > 1 && (wanted.size() != rows.size() ||
                                           !std::equal(rows.begin(), rows.end() - 1, wanted.begin()))))
    fail(ErrorKind::invalid, "[searchsorted] sorted {} has neither one dim nor the leading dims of values {}",
         to_string(rows), to_string(wanted));
  return call("search_sorted", {sorted, values}, {{"right", c.attrs.flag("right")}});
}

std::vector<Op> surface_rows() {
  const AttrSpec dim = {"dim", {}, true}, last = {"dim", int64_t{-1}};
  return {
      composed1("index_select", 2, 2, {dim},
                [](const OpCall& c) {
                  return along("index_pick", {c.inputs[0], index_list(c)},
                               normalize_dim(c.op.name, c.attrs.integer("dim"), c.inputs[0].ndim()));
                }),
      composed1("gather", 2, 2, {dim},
                [](const OpCall& c) {
                  check_index_shape(c, dim_of(c));
                  return along("index_gather", c.inputs, dim_of(c));
                }),
      composed1("scatter", 3, 3, {dim}, [](const OpCall& c) { return scatter(c, "scatter_write"); }),
      composed1("scatter_add", 3, 3, {dim}, [](const OpCall& c) { return scatter(c, "scatter_accumulate"); }),
      composed1("index_add", 3, 3, {dim}, index_add),
      composed1("embedding", 2, 2, {}, embedding_form),
      composed1("one_hot", 1, 1, {{"num_classes", {}, true}}, one_hot),
      composed("topk", 1, 1, {{"k", {}, true}, last, {"largest", true}}, topk_form),
      composed("sort", 1, 1, {last, {"descending", false}}, sort_form),
      composed1("argsort", 1, 1, {last, {"descending", false}},
                [](const OpCall& c) { return sort_form(c)[1]; }),
      composed1("searchsorted", 2, 2, {{"right", false}}, searchsorted),
  };
}

}  // namespace

std::vector<Op> indexing_ops() {
  std::vector<Op> all = primitive_rows();
  for (Op& op : surface_rows()) all.push_back(std::move(op));
  return all;
}

}  // namespace weft
