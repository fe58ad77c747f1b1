// Fused elementwise programs as one generated kernel.
#include "backend/elementwise.h"

#include <algorithm>
#include <cmath>

#include "backend/webgpu/vectors.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"

namespace weft::webgpu {
namespace {

/// Builtins of WGSL whose accuracy or whose NaNs are not promised, and what replaces them on f32.
struct Better {
  std::string_view text, instead;
};
constexpr Better kBetter[] = {
    {"exp({0})", "weft_exp({0})"},
    {"exp2({0})", "weft_exp2({0})"},
    {"(weft_log({0}) * 1.4426950408889634)", "weft_log2({0})"},
    {"sin({0})", "weft_sin({0})"},
    {"cos({0})", "weft_cos({0})"},
    {"tan({0})", "weft_tan({0})"},
    {"atan({0})", "weft_atan({0})"},
    {"(1.5707963267948966 - weft_asin({0}))", "weft_acos({0})"},
    {"sign({0})", "weft_sign({0})"},
};
/// The same for integers: division by zero gives 0.
constexpr Better kBetterUnsigned[] = {
    {"({0} / {1})", "weft_divide_u({0}, {1})"},
    {"({0} % {1})", "weft_remainder_u({0}, {1})"},
};

std::string_view better(std::string_view text, Lane lane) {
  if (lane == Lane::f32)
    for (const Better& b : kBetter)
      if (b.text == text) return b.instead;
  if (lane == Lane::u32)
    for (const Better& b : kBetterUnsigned)
      if (b.text == text) return b.instead;
  return text;
}

std::string replaced(std::string_view text, std::string_view key, const std::string& value) {
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, done)) {
    result += text.substr(done, at - done);
    result += value;
    done = at + key.size();
  }
  return result + std::string(text.substr(done));
}

/// An attribute as a value of the lane.
std::string attribute(Builder& builder, Lane lane, double value) {
  if (lane == Lane::f32) return builder.real(static_cast<float>(value));
  if (lane == Lane::i32)
    return "bitcast<i32>(" + builder.number(static_cast<int64_t>(std::clamp(value, -0x1p31, 0x1p31 - 1))) +
           ")";
  return builder.number(static_cast<int64_t>(std::clamp(value, 0.0, 0x1p32 - 1)));
}

}  // namespace

std::string expression(Builder& builder, const ElementwiseProgram& program,
                       const ElementwiseProgram::Instruction& i) {
  if (i.op->arity == 0) return narrow(i.dtype, builder.constant(i.dtype, i.attrs[0], i.constant));
  const auto reg = [](int r) { return fmt::format("x{}", r); };
  if (i.op->arity == 1 && !i.op->cpu[0] && !i.op->cpu[1])
    return narrow(i.dtype, convert(program.dtype_of(i.inputs[0]), i.dtype, reg(i.inputs[0])));
  const DType decides = program.dtype_of(i.op->arity == 3 ? i.inputs[2] : i.inputs[0]);
  const Lane lane = lane_of(decides);
  std::string text(i.op->wgsl[static_cast<size_t>(lane)]);
  if (text.empty() && i.op->wgsl[0] == "weft_clamp({0}, {a}, {b})" &&
      (lane == Lane::i32 || lane == Lane::u32))
    text = lane == Lane::i32 ? "weft_clamp_i({0}, {a}, {b})" : "weft_clamp_u({0}, {a}, {b})";
  if (text.empty())
    fail(ErrorKind::unsupported, "[webgpu] {} of {} has no form in WGSL",
         i.op->name.empty() ? "this op" : i.op->name, name_of(decides));
  text = better(text, lane);
  for (int k = 0; k < i.op->arity; ++k)
    text = replaced(text, fmt::format("{{{}}}", k), reg(i.inputs[static_cast<size_t>(k)]));
  if (text.find("{a}") != std::string::npos)
    text = replaced(text, "{a}", attribute(builder, lane, i.attrs[0]));
  if (text.find("{b}") != std::string::npos)
    text = replaced(text, "{b}", attribute(builder, lane, i.attrs[1]));
  return narrow(i.dtype, std::move(text));
}

void elementwise(Context& context, const Step& step) {
  const ElementwiseProgram& program = *step.program;
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  Builder builder("elementwise");
  std::string arguments, body;
  for (size_t k = 0; k < step.inputs.size(); ++k) {
    arguments += fmt::format("{}w{}: u32", k ? ", " : "", k);
    body += fmt::format("  let x{0} = {1};\n", k, decode(step.inputs[k].dtype, fmt::format("w{}", k)));
  }
  size_t reg = program.loads.size();
  for (const ElementwiseProgram::Instruction& i : program.instructions)
    body += fmt::format("  let x{} = {};\n", reg++, expression(builder, program, i));
  body += "  return Result(";
  for (size_t k = 0; k < program.stores.size(); ++k)
    body += (k ? ", " : "") + encode(step.outputs[k].dtype, fmt::format("x{}", program.stores[k]));
  builder.code = "fn of_bits(" + arguments + ") -> Result {\n" + body + ");\n}\n";
  map_bits(context, builder, step.inputs, step.outputs);
}

void convert_all(Context& context, const Operand& from, DType dtype, const gpu::Buffer& to) {
  Builder builder("convert");
  builder.code = "fn of_bits(w0: u32) -> Result { return Result(" +
                 encode(dtype, convert(from.dtype, dtype, decode(from.dtype, "w0"))) + "); }\n";
  const Operand out{std::make_shared<WebgpuStorage>(to), dtype, Layout::contiguous(from.layout.shape)};
  map_bits(context, builder, std::span(&from, 1), std::span(&out, 1));
}

}  // namespace weft::webgpu
