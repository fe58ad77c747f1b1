// Kernels that move elements: what an element of the output is, as bits.
#include <algorithm>
#include <bit>

#include "array/half.h"
#include "backend/webgpu/vectors.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

constexpr std::string_view kElement = "fn element(i: u32) -> Result {\n";

/// The bits of a number as an element of `dtype`.
uint32_t bits_of(double value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::f16:
      return float_to_half(static_cast<float>(value));
    case DType::bf16:
      return float_to_bfloat(static_cast<float>(value));
    case DType::boolean:
      return value != 0;
    case DType::u8:
    case DType::i8:
      return static_cast<uint32_t>(static_cast<int64_t>(value)) & 0xff;
    default:
      return static_cast<uint32_t>(static_cast<int64_t>(value));
  }
}

/// Keeps columns at most (lower) or at least (upper) `diagonal` right of their row.
void band(Context& context, const Step& step, bool lower) {
  const Operand &x = step.inputs[0], &out = step.outputs[0];
  const size_t rank = out.layout.shape.size();
  if (rank < 2)
    fail(ErrorKind::invalid, "[{}] needs 2 dims, got {}", step.kernel, to_string(out.layout.shape));
  const int64_t diagonal = step.attrs->has("diagonal") ? step.attrs->integer("diagonal") : 0;
  const size_t pins[] = {rank - 2, rank - 1};
  const Layout* layout = &x.layout;
  const Walk all = walk(out.layout.shape, std::span(&layout, 1), pins);
  Builder builder(step.kernel);
  std::string body(kElement);
  body += builder.unravel(all, "i");
  body += fmt::format("  let right = i32(c{}) - i32(c{});\n", all.pinned(1), all.pinned(0));
  const int64_t bound = std::clamp<int64_t>(diagonal, -(int64_t{1} << 31) + 1, (int64_t{1} << 31) - 1);
  body += fmt::format("  if (right {} bitcast<i32>({})) {{ return Result(0u); }}\n", lower ? ">" : "<",
                      builder.number(bound));
  builder.code = body + "  return Result(" + builder.bits(x, "at0") + ");\n}\n";
  builder.map(context, step.outputs);
}

/// Inputs that fit into the bindings of one kernel.
void cat_some(Context& context, std::span<const Operand> inputs, const Operand& out, size_t dim) {
  std::vector<const Layout*> layouts;
  for (const Operand& x : inputs) layouts.push_back(&x.layout);
  const size_t pins[] = {dim};
  const Walk all = walk(out.layout.shape, layouts, pins);
  const size_t d = all.pinned();
  Builder builder("cat");
  std::string body(kElement);
  body += builder.unravel(all, "i");
  int64_t begin = 0;
  for (size_t k = 0; k < inputs.size();
       ++k) {  // at_k counts from the start of the whole: back by what comes before
    const int64_t end = begin + inputs[k].layout.shape[dim];
    const std::string at = fmt::format("at{} - {}", k, builder.number(begin * inputs[k].layout.strides[dim]));
    const std::string value = builder.bits(inputs[k], at);
    if (k + 1 < inputs.size())
      body += fmt::format("  if (c{} < {}) {{ return Result({}); }}\n", d, builder.number(end), value);
    else
      body += fmt::format("  return Result({});\n}}\n", value);
    begin = end;
  }
  builder.code = body;
  builder.map(context, std::span(&out, 1));
}

/// A copy whose neighbours in the output are far apart in the input, where those of another dim are side by
/// side: squares of 64 x 64 are read along that dim and written along the other. False when it is none.
bool copy_tiles(Context& context, const Operand& x, const Operand& out) {
  constexpr int64_t kSide = 64, kThreads = 256, kShort = 16;
  const Layout* layout = &x.layout;
  const Walk all = walk(out.layout.shape, std::span(&layout, 1));
  const auto beside = std::ranges::find_if(all.dims, [](const Walk::Dim& d) { return d.strides[0] == 1; });
  if (context.software || all.dims.size() < 2 || beside >= all.dims.end() - 1) return false;
  const Walk::Dim& inner = all.dims.back();
  const auto in_word = static_cast<int64_t>(4 / size_of(out.dtype));
  if (beside->size < kShort || inner.size < kShort || in_word > 2 || inner.size % in_word != 0) return false;

  Walk others;
  others.offsets = {all.offsets[0], 0};
  int64_t out_stride = element_count(out.layout.shape), beside_stride = 0;
  for (auto dim = all.dims.begin(); dim < all.dims.end() - 1; ++dim) {
    out_stride /= dim->size;
    if (dim == beside)
      beside_stride = out_stride;
    else
      others.add(dim->size, {dim->strides[0], out_stride});
  }
  const int64_t across = (beside->size + kSide - 1) / kSide, down = (inner.size + kSide - 1) / kSide;
  Builder builder("copy_tiles");
  builder.code = fmt::format("var<workgroup> tile: array<u32, {}>;\n", kSide * (kSide + 1));
  const std::string squares = builder.number(across * down), columns = builder.number(across);
  std::string body = fmt::format(
      "  let square = index % {0};\n  let other = index / {0};\n{3}"
      "  let x0 = square % {1} * {2}u;\n  let y0 = square / {1} * {2}u;\n",
      squares, columns, kSide, builder.unravel(others, "other"));
  // The tile has one row per place of the inner dim, and is one wider than that: banks differ in both ways.
  const std::string width = builder.number(beside->size), height = builder.number(inner.size);
  const std::string from =
      builder.bits(x, fmt::format("at0 + min(x0 + thread % 64u, {} - 1u) + min(y0 + y, {} - 1u) * {}", width,
                                  height, builder.number(inner.strides[0])));
  body += fmt::format(
      "#for k {0}\n  {{\n    let y = $k * {1}u + thread / 64u;\n    tile[y * 65u + thread % 64u] = {2};\n  "
      "}}\n"
      "#endfor\n  workgroupBarrier();\n",
      kSide * kSide / kThreads, kThreads / kSide, from);
  const int64_t words = kSide / in_word;  // of a row of the square in the output
  std::string word = "tile[y * 65u + x]";
  if (in_word == 2) word += " | (tile[(y + 1u) * 65u + x] << 16u)";
  body += fmt::format(
      "#for k {0}\n  {{\n    let x = $k * {1}u + thread / {2}u;\n    let y = thread % {2}u * {3}u;\n"
      "    if (x0 + x < {4} && y0 + y < {5}) {{ {6}[(at1 + (x0 + x) * {7} + y0 + y) / {3}u] = {8}; }}\n  "
      "}}\n#endfor\n",
      kSide * words / kThreads, kThreads / words, words, in_word, width, height,
      builder.write(buffer_of(out)), builder.number(beside_stride), word);
  builder.groups(context, across * down * others.count(), kThreads, body);
  return true;
}

}  // namespace

void copy(Context& context, const Step& step) {
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  if (copy_tiles(context, step.inputs[0], step.outputs[0])) return;
  Builder builder("copy");
  builder.code = "fn of_bits(w0: u32) -> Result { return Result(w0); }\n";
  map_bits(context, builder, step.inputs, step.outputs);
}

Operand contiguous(Context& context, const Operand& x) {
  if (x.layout.is_contiguous()) return x;
  const Layout layout = Layout::contiguous(x.layout.shape);
  const int64_t words = (element_count(x.layout.shape) * static_cast<int64_t>(size_of(x.dtype)) + 3) / 4;
  const Operand packed{std::make_shared<WebgpuStorage>(context.scratch(words, "copy")), x.dtype, layout};
  copy(context, {.kernel = "copy", .inputs = {x}, .outputs = {packed}});
  return packed;
}

void pad_constant(Context& context, const Step& step) {
  const Operand &x = step.inputs[0], &out = step.outputs[0];
  const std::vector<int64_t>& lo = step.attrs->list("lo");
  const Shape& shape = out.layout.shape;
  if (lo.size() != shape.size())
    fail(ErrorKind::invalid, "[pad] {} values of lo for {} dims", lo.size(), shape.size());
  Builder builder("pad");
  Walk all;
  for (size_t d = 0; d < shape.size(); ++d) all.add(shape[d], {}, true);
  std::string body(kElement);
  body += builder.unravel(all, "i");
  body += fmt::format("  var at = {};\n  var inside = true;\n", builder.number(x.layout.offset));
  for (size_t d = 0; d < shape.size(); ++d) {
    body += fmt::format("  let x{0} = c{0} - {1};\n", d, builder.number(lo[d]));  // wraps: below 0 is large
    body += fmt::format("  inside = inside && x{} < {};\n", d, builder.number(x.layout.shape[d]));
    body += fmt::format("  at += x{} * {};\n", d, builder.number(x.layout.strides[d]));
  }
  body += fmt::format("  if (!inside) {{ return Result({}); }}\n",
                      builder.number(bits_of(step.attrs->number("value"), x.dtype)));
  builder.code = body + "  return Result(" + builder.bits(x, "at") + ");\n}\n";
  builder.map(context, step.outputs);
}

void cat(Context& context, const Step& step) {
  const Operand& out = step.outputs[0];
  const auto dim =
      static_cast<size_t>(normalize_dim("cat", step.attrs->integer("dim"), out.layout.shape.size()));
  const size_t most =
      std::min<size_t>(16, std::max<size_t>(context.device.limits().max_storage_buffers, 4) - 2);
  std::vector<Operand> parts;
  for (const Operand& x : step.inputs)
    if (element_count(x.layout.shape) > 0) parts.push_back(x);
  if (parts.empty()) return;
  while (parts.size() > most) {  // too many to bind: neighbours become one first
    std::vector<Operand> joined;
    for (size_t begin = 0; begin < parts.size(); begin += most) {
      const std::span<const Operand> some =
          std::span(parts).subspan(begin, std::min(most, parts.size() - begin));
      Shape shape = out.layout.shape;
      shape[dim] = 0;
      for (const Operand& x : some) shape[dim] += x.layout.shape[dim];
      const int64_t bytes = element_count(shape) * static_cast<int64_t>(size_of(out.dtype));
      joined.push_back({std::make_shared<WebgpuStorage>(context.scratch((bytes + 3) / 4, "cat")), out.dtype,
                        Layout::contiguous(shape)});
      cat_some(context, some, joined.back(), dim);
    }
    parts = std::move(joined);
  }
  cat_some(context, parts, out, dim);
}

void tril(Context& context, const Step& step) {
  band(context, step, true);
}

void triu(Context& context, const Step& step) {
  band(context, step, false);
}

}  // namespace weft::webgpu
