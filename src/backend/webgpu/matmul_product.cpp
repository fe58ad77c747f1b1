// Parts of a matrix product, and the WGSL that reads its factors and stores its elements.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/webgpu/matmul.h"

namespace weft::webgpu {
namespace {

/// One dim of a product, and its strides in a, b and out.
struct Axis {
  int64_t size;
  std::array<int64_t, 3> strides;
};

/// m, n, k, then the batch dims.
std::vector<Axis> axes_of(const Product& p) {
  std::vector<Axis> axes = {{p.a.size, {p.a.stride, 0, p.row_stride}},
                            {p.b.size, {0, p.b.stride, p.column_stride}},
                            {p.k, {p.a.k_stride, p.b.k_stride, 0}}};
  for (const Walk::Dim& dim : p.batch.dims)
    axes.push_back({dim.size, {dim.strides[0], dim.strides[1], dim.strides[2]}});
  return axes;
}

/// Elements of operand a, b or out (0, 1, 2) that a product touches.
struct Span {
  int64_t first, last;
};

Span span_of(const Product& p, size_t operand) {
  Span span{p.batch.offsets[operand], p.batch.offsets[operand]};
  for (const Axis& axis : axes_of(p)) {
    const int64_t way = (axis.size - 1) * axis.strides[operand];
    (way < 0 ? span.first : span.last) += way;
  }
  return span;
}

/// The first `size` of an axis, or what comes after them.
Product part_of(Product p, size_t axis, int64_t size, bool after) {
  const std::array<int64_t, 3> strides = axes_of(p)[axis].strides;
  int64_t& whole = axis == 0   ? p.a.size
                   : axis == 1 ? p.b.size
                   : axis == 2 ? p.k
                               : p.batch.dims[axis - 3].size;
  whole = after ? whole - size : size;
  for (size_t operand = 0; after && operand < 3; ++operand)
    p.batch.offsets[operand] += size * strides[operand];
  p.adds = p.adds || (after && axis == 2);
  return p;
}

void add_parts(std::vector<Product>& parts, const Product& p, int64_t limit) {
  const std::array<int64_t, 3> bytes = {static_cast<int64_t>(size_of(p.a.dtype)),
                                        static_cast<int64_t>(size_of(p.b.dtype)), 4};
  for (size_t operand = 0; operand < 3; ++operand) {
    const Span span = span_of(p, operand);
    if ((span.last - span.first + 1) * bytes[operand] <= limit) continue;
    const std::vector<Axis> axes = axes_of(p);
    const auto way = [&](const Axis& axis) { return (axis.size - 1) * std::abs(axis.strides[operand]); };
    const auto longest = std::ranges::max_element(axes, {}, way);
    if (way(*longest) == 0) break;  // one element: the binding will say that it is too large
    const auto axis = static_cast<size_t>(longest - axes.begin());
    // Rows and columns stay aligned for wide loads.
    const int64_t half = longest->size > 128 ? longest->size / 128 * 64 : longest->size / 2;
    add_parts(parts, part_of(p, axis, half, false), limit);
    add_parts(parts, part_of(p, axis, half, true), limit);
    return;
  }
  parts.push_back(p);
}

/// A buffer, or the range of it that a product touches when all of it passes the limit.
struct Bound {
  gpu::Binding binding;
  int64_t first = 0;  ///< element at the start of the binding
};

constexpr int64_t kSliceStep = 512;  // what the steps of every form divide, so that slices do not overlap
constexpr int64_t kAlignment = 256;  // bytes, the largest that any adapter asks for

Bound bound(const MatmulStep& step, size_t operand) {
  const Product& p = step.product;
  const gpu::Buffer& buffer = operand == 0 ? p.a.buffer : operand == 1 ? p.b.buffer : step.target.buffer;
  const DType dtype = operand == 0 ? p.a.dtype : operand == 1 ? p.b.dtype : step.target.dtype;
  if (buffer.size() <= step.device.limits.max_binding_size) return {buffer};
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  const Span span = span_of(p, operand);
  const int64_t begin = span.first * bytes / kAlignment * kAlignment,
                end = std::min<int64_t>(((span.last + 1) * bytes + 3) / 4 * 4,
                                        static_cast<int64_t>(buffer.size()));
  return {{buffer, static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)}, begin / bytes};
}

/// Whether groups of `count` elements along one dim of a factor are aligned vectors in memory.
bool is_wide(const Product& p, size_t operand, bool along_k, int64_t count) {
  const Factor& f = operand == 0 ? p.a : p.b;
  bool wide = (along_k ? f.k_stride : f.stride) == 1 && (along_k ? p.k : f.size) % count == 0 &&
              (along_k ? f.stride : f.k_stride) % count == 0 && p.batch.offsets[operand] % count == 0;
  for (const Walk::Dim& dim : p.batch.dims) wide = wide && dim.strides[operand] % count == 0;
  return wide && f.buffer.size() >= 16;  // an array of vectors has one at least
}

/// Whether `store` is always given four elements that are an aligned vector of the output.
bool stores_whole_fours(const Product& p, int64_t count) {
  const bool rows = p.column_stride == 1 ? p.row_stride % 4 == 0 && p.b.size % 4 == 0
                                         : p.column_stride == p.a.size && p.a.size * p.b.size % 4 == 0;
  bool whole = rows && p.batch.offsets[2] % 4 == 0 && (p.slices == 1 || count % 4 == 0);
  for (const Walk::Dim& dim : p.batch.dims) whole = whole && dim.strides[2] % 4 == 0;
  return whole;
}

/// The start of a function that loads `width` elements of factor a or b from `at` on. Rows and columns
/// outside are those of the edge: nobody stores what becomes of them. k outside is 0. What whole tiles cover
/// is not checked: that costs a tenth of the speed.
std::string load_head(const MatmulStep& step, std::string_view function, char name, std::string_view type,
                      int width) {
  const auto ragged = [](int64_t size, int64_t tile) { return tile == 0 || size % tile != 0; };
  const Product& p = step.product;
  const bool is_a = name == 'a', clamp = is_a ? ragged(p.a.size, step.tile.m) : ragged(p.b.size, step.tile.n);
  std::string text = fmt::format("fn {}_{}(base: u32, outer: u32, k: u32) -> {} {{\n", function, name, type);
  if (ragged(p.k, step.tile.k)) text += fmt::format("  if (k >= size_k()) {{ return {}(); }}\n", type);
  const std::string inside =
      clamp ? fmt::format("min(outer, size_{}() - {}u)", is_a ? 'm' : 'n', width) : "outer";
  return text + fmt::format("  let at = base + {1} * {0}_stride() + k * {0}_k_stride();\n", name, inside);
}

/// `one_a` i places further along.
std::string one_of(char name, bool along_k, int i) {
  return fmt::format("one_{}(base, outer + {}u, k + {}u)", name, along_k ? 0 : i, along_k ? i : 0);
}

}  // namespace

bool Factor::along_k() const {
  return k_stride == 1 || (stride != 1 && std::abs(k_stride) <= std::abs(stride));
}

int64_t Product::slice_k() const {
  return (k + slices * kSliceStep - 1) / (slices * kSliceStep) * kSliceStep;
}

void Product::cut(int64_t into) {
  slices = into;
  slices = (k - 1) / slice_k() + 1;
}

std::vector<Product> parts_that_fit(const Product& whole, uint64_t limit) {
  std::vector<Product> parts;
  add_parts(parts, whole, static_cast<int64_t>(limit) - kAlignment);
  return parts;
}

bool loads_fours(const Product& p) {
  return is_wide(p, 0, p.a.along_k(), 4) && is_wide(p, 1, p.b.along_k(), 4);
}

bool stores_whole_words(const Product& p) {
  const bool rows =
      p.column_stride == 1 ? p.row_stride % 2 == 0 && p.b.size % 2 == 0 : p.column_stride == p.a.size;
  bool whole = rows && p.batch.offsets[2] % 2 == 0;
  for (const Walk::Dim& dim : p.batch.dims) whole = whole && dim.strides[2] % 2 == 0;
  return whole;
}

std::string result_function(Builder& builder, const Target& target) {
  if (!target.epilogue)
    return "fn result(at: u32, x0: T) -> u32 { return " + encode(target.dtype, "x0") + "; }\n";
  const Step& step = *target.epilogue;
  const ElementwiseProgram& program = *step.program;
  const std::span<const Operand> loads = std::span(step.inputs).subspan(2);
  std::vector<const Layout*> layouts;
  for (const Operand& load : loads) layouts.push_back(&load.layout);
  std::string text =
      "fn result(at: u32, sum: T) -> u32 {\n  let x0 = " + narrow(program.loads[0], "sum") + ";\n";
  text += builder.unravel(walk(step.outputs[0].layout.shape, layouts), "at", "x");
  for (size_t k = 0; k < loads.size(); ++k)
    text += fmt::format("  let x{} = {};\n", k + 1, builder.load(loads[k], fmt::format("xat{}", k)));
  size_t reg = program.loads.size();
  for (const ElementwiseProgram::Instruction& i : program.instructions)
    text += fmt::format("  let x{} = {};\n", reg++, expression(builder, program, i));
  return text +
         fmt::format("  return {};\n}}\n", encode(target.dtype, fmt::format("x{}", program.stores[0])));
}

bool takes_epilogue(const Step& step) {
  // Factors are bound as vectors; an epilogue reads elements.
  const auto is_factor = [&](const Operand& load) {
    return load.storage == step.inputs[0].storage || load.storage == step.inputs[1].storage;
  };
  const std::span<const Operand> loads = std::span(step.inputs).subspan(2);
  return step.outputs.size() == 1 && is_float(step.outputs[0].dtype) &&
         std::ranges::none_of(loads, is_factor);
}

void declare_product(Builder& builder, const MatmulStep& step) {
  const Product& p = step.product;
  Walk batch = p.batch;
  batch.offsets[0] -= bound(step, 0).first;
  batch.offsets[1] -= bound(step, 1).first;
  builder.code = fmt::format("alias T = {};\n", lane_type(p.a.dtype));
  builder.code += "fn bases(i: u32) -> vec3<u32> {\n" + builder.unravel(batch, "i") +
                  "  return vec3<u32>(at0, at1, at2);\n}\n";
  const std::pair<std::string_view, int64_t> numbers[] = {
      {"size_m", p.a.size},         {"size_n", p.b.size},         {"size_k", p.k},
      {"a_stride", p.a.stride},     {"a_k_stride", p.a.k_stride}, {"b_stride", p.b.stride},
      {"b_k_stride", p.b.k_stride}, {"row_stride", p.row_stride}, {"column_stride", p.column_stride},
      {"batches", p.batch.count()}, {"slice_k", p.slice_k()},     {"slice_count", step.target.count}};
  for (const auto& [name, value] : numbers)
    builder.code += fmt::format("fn {}() -> u32 {{ return {}; }}\n", name, builder.number(value));
}

void declare_store(Builder& builder, const MatmulStep& step) {
  const Product& p = step.product;
  const Bound out = bound(step, 2);
  const bool halves = size_of(step.target.dtype) == 2,
             fours = !p.adds && stores_whole_fours(p, step.target.count);
  const std::string to = builder.write(out.binding, !fours ? 1 : halves ? 2 : 4);
  const std::string first = out.first == 0 ? "" : " - " + builder.number(out.first);
  if (p.adds)
    builder.code +=
        fmt::format("fn result(at: u32, x0: T) -> u32 {{ return {}; }}\n",
                    encode(step.target.dtype, fmt::format("(x0 + bitcast<T>({}[at{}]))", to, first)));
  else
    builder.code += result_function(builder, step.target);
  builder.code += fmt::format("fn store(at: u32, v: vec4<T>, count: u32) {{\n  let to = at{};\n", first);
  if (fours && halves)
    builder.code += fmt::format(
        "  {}[to / 4u] = vec2<u32>(result(at, v.x) | (result(at + 1u, v.y) << 16u),\n"
        "                         result(at + 2u, v.z) | (result(at + 3u, v.w) << 16u));\n",
        to);
  else if (fours)
    builder.code += fmt::format(
        "  {}[to / 4u] = vec4<u32>(result(at, v.x), result(at + 1u, v.y), result(at + 2u, v.z), result(at + "
        "3u, v.w));\n",
        to);
  else if (halves)
    builder.code += fmt::format(
        "  for (var i = 0u; i < count; i += 2u) {{\n    var word = result(at + i, v[i]);\n"
        "    if (i + 1u < count) {{ word |= result(at + i + 1u, v[i + 1u]) << 16u; }}\n"
        "    {}[(to + i) / 2u] = word;\n  }}\n",
        to);
  else
    builder.code +=
        fmt::format("  for (var i = 0u; i < count; i++) {{ {}[to + i] = result(at + i, v[i]); }}\n", to);
  builder.code += "}\n";
}

void declare_four(Builder& builder, const MatmulStep& step, char name, bool along_k) {
  const size_t operand = name == 'a' ? 0 : 1;
  const DType dtype = (name == 'a' ? step.product.a : step.product.b).dtype;
  const bool half = size_of(dtype) == 2, unpack = dtype == DType::f16 && step.device.features.unpack_f16,
             wide = is_wide(step.product, operand, along_k, 4);
  const std::string from = builder.read(bound(step, operand).binding, !wide ? 1 : half ? 2 : 4);
  const std::string_view decode = dtype == DType::f16 ? "weft_from_f16" : "weft_from_bf16";
  std::string& code = builder.code;
  if (wide) {
    code += load_head(step, "four", name, "vec4<T>", along_k ? 1 : 4) +
            fmt::format("  let w = {}[at / 4u];\n", from);
    if (!half)
      code += "  return bitcast<vec4<T>>(w);\n}\n";
    else if (unpack)
      code += "  return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));\n}\n";
    else
      code += fmt::format(
          "  return vec4<f32>({0}(w.x & 0xffffu), {0}(w.x >> 16u), {0}(w.y & 0xffffu), {0}(w.y >> "
          "16u));\n}}\n",
          decode);
    return;
  }
  code += load_head(step, "one", name, "T", 1);
  if (!half)
    code += fmt::format("  return bitcast<T>({}[at]);\n}}\n", from);
  else if (unpack)
    code += fmt::format("  return unpack2x16float({}[at / 2u])[at % 2u];\n}}\n", from);
  else
    code += fmt::format("  return {}(({}[at / 2u] >> (at % 2u * 16u)) & 0xffffu);\n}}\n", decode, from);
  code += fmt::format(
      "fn four_{}(base: u32, outer: u32, k: u32) -> vec4<T> {{\n  return vec4<T>({}, {}, {}, {});\n}}\n",
      name, one_of(name, along_k, 0), one_of(name, along_k, 1), one_of(name, along_k, 2),
      one_of(name, along_k, 3));
}

void declare_eight(Builder& builder, const MatmulStep& step, char name) {
  const size_t operand = name == 'a' ? 0 : 1;
  const bool along_k = (name == 'a' ? step.product.a : step.product.b).along_k(),
             wide = is_wide(step.product, operand, along_k, 8);
  const std::string from = builder.read(bound(step, operand).binding, wide ? 4 : 1);
  std::string& code = builder.code;
  if (wide) {
    code += load_head(step, "eight", name, "vec4<u32>", along_k ? 1 : 8) +
            fmt::format("  return {}[at / 8u];\n}}\n", from);
    return;
  }
  code += load_head(step, "one", name, "u32", 1) +
          fmt::format("  return ({}[at / 2u] >> (at % 2u * 16u)) & 0xffffu;\n}}\n", from);
  code +=
      fmt::format("fn eight_{}(base: u32, outer: u32, k: u32) -> vec4<u32> {{\n  return vec4<u32>(", name);
  for (int i = 0; i < 8; i += 2)
    code += fmt::format("{}{} | ({} << 16u)", i ? ", " : "", one_of(name, along_k, i),
                        one_of(name, along_k, i + 1));
  code += ");\n}\n";
}

}  // namespace weft::webgpu
