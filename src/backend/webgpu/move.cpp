// Kernels that move elements: what an element of the output is, as bits.
#include <algorithm>
#include <bit>

#include "array/half.h"
#include "backend/webgpu/builder.h"
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

}  // namespace

void copy(Context& context, const Step& step) {
  const Layout* layout = &step.inputs[0].layout;
  Builder builder("copy");
  std::string body(kElement);
  body += builder.unravel(walk(step.outputs[0].layout.shape, std::span(&layout, 1)), "i");
  builder.code = body + "  return Result(" + builder.bits(step.inputs[0], "at0") + ");\n}\n";
  builder.map(context, step.outputs);
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
