// Gather, scatter and searchsorted. An index outside of its dim cannot be reported from a GPU: reads go to
// the nearest element, writes are left out.
#include "array/index_layout.h"
#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

size_t dim_of(const Step& step, size_t rank) {
  return rank == 0 ? 0 : static_cast<size_t>(normalize_dim(step.kernel, step.attrs->integer("dim"), rank));
}

Operand spread(Operand indices, const Shape& shape, size_t dim) {
  indices.layout = weft::spread(indices.layout, shape, dim);
  return indices;
}

std::string index_value(Builder& builder, const Operand& indices, std::string_view at) {
  return convert(indices.dtype, DType::i32, builder.load(indices, at));
}

void gather_from(Context& context, const Operand& x, const Operand& indices, const Operand& out, size_t dim) {
  const Layout base = pinned(x.layout, dim);
  const Layout* layouts[] = {&base, &indices.layout};
  const bool scalar = x.layout.shape.empty();
  Builder builder("gather");
  std::string body =
      "fn element(i: u32) -> Result {\n" + builder.unravel(walk(out.layout.shape, layouts), "i");
  body += fmt::format("  let place = u32(clamp({}, 0, i32({}) - 1));\n", index_value(builder, indices, "at1"),
                      builder.number(scalar ? 1 : x.layout.shape[dim]));
  const std::string stride = builder.number(scalar ? 0 : x.layout.strides[dim]);
  builder.code = body + "  return Result(" + builder.bits(x, "at0 + place * " + stride) + ");\n}\n";
  builder.elements = element_count(out.layout.shape);
  builder.map(context, std::span(&out, 1));
}

/// One invocation per line along `dim` of the indices, in order: the same sums every time. `out` has 4-byte
/// elements.
void scatter_lines(Context& context, const Operand& indices, const Operand& src, const Operand& out,
                   size_t dim, bool add) {
  const Shape& shape = indices.layout.shape;
  Walk lines;
  lines.offsets = {indices.layout.offset, src.layout.offset, 0};
  int64_t size = 1, index_stride = 0, src_stride = 0, out_stride = 0, places = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != dim) {
      lines.add(shape[d], {indices.layout.strides[d], src.layout.strides[d], out.layout.strides[d]});
      continue;
    }
    size = shape[d], index_stride = indices.layout.strides[d], src_stride = src.layout.strides[d];
    out_stride = out.layout.strides[d], places = out.layout.shape[d];
  }
  if (size * lines.count() == 0) return;
  Builder builder(add ? "scatter_add" : "scatter");
  const std::string to = builder.write(buffer_of(out));
  const std::string value = convert(
      src.dtype, out.dtype, builder.load(src, fmt::format("at1 + j * {}", builder.number(src_stride))));
  const std::string old = builder.load(out, "to");
  std::string body = "fn scatter(i: u32) {\n" + builder.unravel(lines, "i");
  body += fmt::format("  for (var j = 0u; j < {}; j++) {{\n", builder.number(size));
  body +=
      fmt::format("    let place = bitcast<u32>({});\n",
                  index_value(builder, indices, fmt::format("at0 + j * {}", builder.number(index_stride))));
  body += fmt::format("    if (place < {}) {{\n      let to = at2 + place * {};\n", builder.number(places),
                      builder.number(out_stride));
  body += fmt::format("      {}[to] = bitcast<u32>({}{});\n    }}\n  }}\n}}\n", to, add ? old + " + " : "",
                      value);
  builder.code = body;
  const int64_t count = lines.count();
  builder.groups(context, (count + 63) / 64, 64,
                 fmt::format("  if (index * 64u + thread < {}) {{ scatter(index * 64u + thread); }}\n",
                             builder.number(count)));
}

/// Adds slices to those of `out` that a list of indices names, for long lists. A workgroup owns a range of
/// places and a block of lines; it takes the indices of its range in their order, so that sums do not depend
/// on timing.
void add_in_ranges(Context& context, const Operand& indices, const Operand& src, const Operand& out,
                   size_t dim) {
  constexpr int64_t kThreads = 256, kGroups = 1024;  // groups that keep a GPU busy
  Walk lines;
  lines.offsets = {src.layout.offset, 0};
  for (size_t d = 0; d < src.layout.shape.size(); ++d)
    if (d != dim) lines.add(src.layout.shape[d], {src.layout.strides[d], out.layout.strides[d]});
  const int64_t blocks = (lines.count() + kThreads - 1) / kThreads, places = out.layout.shape[dim];
  const int64_t ranges = std::clamp<int64_t>(kGroups / std::max<int64_t>(blocks, 1), 1, places);

  Builder builder("add_in_ranges");
  builder.code = embedded::webgpu_kernels("add_in_ranges");
  const std::string to = builder.write(buffer_of(out));
  builder.code += fmt::format(
      "fn place_of(j: u32) -> u32 {{ return bitcast<u32>({}); }}\n",
      index_value(
          builder, indices,
          fmt::format("{} + j * {}", builder.number(indices.layout.offset),
                      builder.number(indices.layout.strides.empty() ? 0 : indices.layout.strides[0]))));
  builder.code += fmt::format(
      "alias T = {};\nfn value_of(at: u32, j: u32) -> T {{ return {}; }}\n", lane_type(out.dtype),
      convert(src.dtype, out.dtype,
              builder.load(src, fmt::format("at + j * {}", builder.number(src.layout.strides[dim])))));
  builder.code += fmt::format("fn old(at: u32) -> T {{ return {}; }}\n", builder.load(out, "at"));
  builder.code += fmt::format("fn put(at: u32, sum: T) {{ {}[at] = bitcast<u32>(sum); }}\n", to);
  const std::string body = fmt::format(
      "  let line = index / {0} * {1}u + thread;\n{2}"
      "  add(index % {0} * {3}, {3}, {4}, {5}, thread, line < {6}, at0, at1, {7});\n",
      builder.number(ranges), kThreads,
      builder.unravel(lines, fmt::format("min(line, {} - 1u)", builder.number(lines.count()))),
      builder.number((places + ranges - 1) / ranges), builder.number(places),
      builder.number(src.layout.shape[dim]), builder.number(lines.count()),
      builder.number(out.layout.strides[dim]));
  builder.groups(context, ranges * blocks, kThreads, body);
}

}  // namespace

void gather(Context& context, const Step& step) {
  gather_from(context, step.inputs[0], step.inputs[1], step.outputs[0],
              dim_of(step, step.inputs[0].layout.shape.size()));
}

void index_select(Context& context, const Step& step) {
  const Operand& out = step.outputs[0];
  const size_t dim = dim_of(step, step.inputs[0].layout.shape.size());
  gather_from(context, step.inputs[0], spread(step.inputs[1], out.layout.shape, dim), out, dim);
}

void scatter(Context& context, const Step& step) {
  const Operand &x = step.inputs[0], &src = step.inputs[2], &out = step.outputs[0];
  const bool add = step.kernel != "scatter_write";
  if (add && out.dtype == DType::boolean)
    fail(ErrorKind::unsupported, "[{}] bools cannot be added", step.kernel);
  const size_t dim = dim_of(step, out.layout.shape.size());
  const Operand indices =
      step.kernel == "index_accumulate" ? spread(step.inputs[1], src.layout.shape, dim) : step.inputs[1];
  // Narrow elements share words, and sums of halves are rounded once: through a wide result.
  const DType wide = is_float(out.dtype)               ? DType::f32
                     : lane_of(out.dtype) == Lane::i32 ? DType::i32
                                                       : DType::u32;
  Operand target = out;
  if (wide != out.dtype)
    target = {std::make_shared<WebgpuStorage>(context.scratch(element_count(out.layout.shape), "scatter")),
              wide, out.layout};
  convert_all(context, x, wide, buffer_of(target));
  constexpr int64_t kLong = 256;  // indices that are worth a search in every range
  if (step.kernel == "index_accumulate" && !context.software && !src.layout.shape.empty() &&
      src.layout.shape[dim] >= kLong)
    add_in_ranges(context, step.inputs[1], src, target, dim);
  else
    scatter_lines(context, indices, src, target, dim, add);
  if (wide != out.dtype) convert_all(context, target, out.dtype, buffer_of(out));
}

/// One invocation per word.
void declare_put(Builder& builder, const Step& step, std::string_view suffix) {
  const Operand &idx = step.inputs[1], &src = step.inputs[2], &out = step.outputs[0];
  const int64_t width = element_count(src.layout.shape) / src.layout.shape[0];
  const auto per_word = static_cast<int64_t>(4 / size_of(out.dtype));
  const Layout* layouts[] = {&src.layout};
  const std::string to = builder.write(buffer_of(out));
  std::string body = fmt::format("fn source{}(i: u32) -> u32 {{\n", suffix) +
                     builder.unravel(walk(src.layout.shape, layouts), "i");
  body += fmt::format("  return {};\n}}\n", builder.bits(src, "at0"));
  const std::string words = builder.number(width / per_word);
  body += fmt::format("fn row_for{}(i: u32) -> u32 {{ return bitcast<u32>({}); }}\n", suffix,
                      index_value(builder, idx,
                                  fmt::format("{} + i / {} * {}", builder.number(idx.layout.offset), words,
                                              builder.number(idx.layout.strides[0]))));
  body += fmt::format(
      "fn put{0}(i: u32, row: u32) {{\n  if (row >= {1}) {{ return; }}\n  var word = source{0}(i * {2}u);\n",
      suffix, builder.number(out.layout.shape[0]), per_word);
  for (int64_t k = 1; k < per_word; ++k)
    body +=
        fmt::format("  word |= source{}(i * {}u + {}u) << {}u;\n", suffix, per_word, k, 32 / per_word * k);
  builder.code += body + fmt::format("  {}[row * {} + i % {}] = word;\n}}\n", to, words, words);
}

void put_rows(Context& context, const Step& step) {
  const int64_t elements = element_count(step.inputs[2].layout.shape);
  if (elements == 0) return;
  Builder builder("put_rows");
  declare_put(builder, step, "");
  builder.elements = elements;
  const int64_t count = elements / static_cast<int64_t>(4 / size_of(step.outputs[0].dtype));
  builder.groups(
      context, (count + 63) / 64, 64,
      fmt::format(
          "  if (index * 64u + thread < {}) {{ put(index * 64u + thread, row_for(index * 64u + thread)); "
          "}}\n",
          builder.number(count)));
}

void search_sorted(Context& context, const Step& step) {
  const Operand &sorted = step.inputs[0], &values = step.inputs[1], &out = step.outputs[0];
  const bool right = step.attrs->has("right") && step.attrs->flag("right");
  Layout lines{values.layout.shape, std::vector<int64_t>(values.layout.shape.size(), 0),
               sorted.layout.offset};
  if (sorted.layout.shape.size() > 1)
    for (size_t d = 0; d + 1 < lines.strides.size(); ++d) lines.strides[d] = sorted.layout.strides[d];
  const Layout* layouts[] = {&lines, &values.layout};
  Builder builder("search_sorted");
  const std::string_view t = lane_type(sorted.dtype);
  std::string less = "a < b";
  if (t == "f32") less = "a < b || (!weft_isnan(a) && weft_isnan(b))";
  if (t == "bool") less = "!a && b";
  builder.code = fmt::format("fn less(a: {0}, b: {0}) -> bool {{ return {1}; }}\n", t, less);
  std::string body =
      "fn element(i: u32) -> Result {\n" + builder.unravel(walk(out.layout.shape, layouts), "i");
  body += fmt::format("  let v = {};\n  var low = 0u;\n  var high = {};\n", builder.load(values, "at1"),
                      builder.number(sorted.layout.shape.back()));
  body += fmt::format(
      "  while (low < high) {{\n    let middle = (low + high) / 2u;\n    let x = {};\n",
      builder.load(sorted, fmt::format("at0 + middle * {}", builder.number(sorted.layout.strides.back()))));
  body += fmt::format(
      "    if ({}) {{ low = middle + 1u; }} else {{ high = middle; }}\n  }}\n  return Result(low);\n}}\n",
      right ? "!less(v, x)" : "less(x, v)");
  builder.code += body;
  builder.map(context, step.outputs);
}

}  // namespace weft::webgpu
