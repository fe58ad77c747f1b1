// Weights in ggml's blocks.
#include <fmt/format.h>

#include "backend/webgpu/builder.h"
#include "backend/webgpu/webgpu_backend.h"
#include "quant/codes.h"
#include "quant/grids.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// 16 bits a point: 8 elements of 2 bits or 4 of 4. Empty for types without a grid.
std::vector<uint16_t> grid_of(quant::Type type) {
  std::vector<uint16_t> words;
  const auto put = [&](const auto& grid) {
    for (const auto& point : grid) {
      uint32_t word = 0;
      for (size_t i = 0; i < point.size(); ++i) word |= uint32_t{point[i]} << 16 / point.size() * i;
      words.push_back(static_cast<uint16_t>(word));
    }
  };
  using enum quant::Type;
  if (type == iq2_xxs) put(quant::kGridIq2Xxs);
  if (type == iq2_xs) put(quant::kGridIq2Xs);
  if (type == iq2_s) put(quant::kGridIq2S);
  if (type == iq3_xxs) put(quant::kGridIq3Xxs);
  if (type == iq3_s) put(quant::kGridIq3S);
  if (type == iq1_s || type == iq1_m) put(quant::kGridIq1);
  return words;
}

std::string_view name_of_scales(quant::Scales scales) {
  static constexpr std::string_view kNames[] = {"half",    "bfloat", "halves", "sixes",
                                                "nibbles", "bytes",  "parts"};
  return kNames[static_cast<size_t>(scales)];
}

/// level(code) as f32.
std::string level_function(const quant::Coding& coding) {
  if (coding.bits == 8) return "fn level(code: u32) -> f32 { return f32(weft_wrap_i8(i32(code))); }\n";
  if (coding.table.empty())
    return fmt::format("fn level(code: u32) -> f32 {{ return f32(i32(code) - {}); }}\n", coding.offset);
  std::string list;
  for (const int8_t level : coding.table) list += fmt::format("{}.0, ", level);
  return fmt::format("var<private> levels: array<f32, {0}> = array<f32, {0}>({1});\n", coding.table.size(),
                     list) +
         "fn level(code: u32) -> f32 { return levels[code]; }\n";
}

/// Bytes without gaps, from any offset: those of w, or a copy.
Operand without_gaps(Context& context, const Operand& w) {
  Layout layout = w.layout;
  layout.offset = 0;
  if (layout.is_contiguous()) return w;
  const int64_t bytes = element_count(w.layout.shape);
  const Operand packed{std::make_shared<WebgpuStorage>(context.scratch((bytes + 3) / 4, "blocks")), w.dtype,
                       Layout::contiguous(w.layout.shape)};
  copy(context, {.kernel = "copy", .inputs = {w}, .outputs = {packed}});
  return packed;
}

/// byte, code, factor, part, scale_min and level of a type whose blocks are w.
void declare_blocks(Context& context, Builder& builder, const Operand& w, quant::Type type) {
  const quant::Coding& coding = quant::coding(type);
  const std::string_view name = quant::traits(type).name;
  builder.code = "fn byte(at: u32) -> u32 { return " +
                 builder.bits(w, "at + " + builder.number(w.layout.offset)) + "; }\n";
  builder.code += embedded::webgpu_kernels("quant");
  if (const std::vector<uint16_t> points = grid_of(type); !points.empty()) {
    const gpu::Buffer table =
        context.device.table(fmt::format("grid of {}", name), std::as_bytes(std::span(points)));
    builder.code +=
        fmt::format("fn grid(i: u32) -> u32 {{ return ({}[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu; }}\n",
                    builder.read(table));
  } else {
    builder.code += "fn grid(i: u32) -> u32 { return 0u; }\n";
  }
  if (coding.bits == 0) return;
  using enum quant::Scales;
  const bool has_factor = coding.scales != parts, has_parts = coding.scales >= sixes;
  builder.code += fmt::format("fn code(b: u32, i: u32) -> u32 {{ return code_{}(b, i); }}\n", name);
  builder.code += fmt::format("fn factor(b: u32) -> u32 {{ return {}; }}\n",
                              has_factor ? fmt::format("factor_{}(b)", name) : "0u");
  builder.code += fmt::format("fn part(b: u32, g: u32) -> u32 {{ return {}; }}\n",
                              has_parts ? fmt::format("part_{}(b, g)", name) : "0u");
  builder.code +=
      fmt::format("fn scale_min(factor: u32, part: u32) -> vec2<f32> {{ return scale_{}(factor, part); }}\n",
                  name_of_scales(coding.scales));
  builder.code += level_function(coding);
}

/// The bits of element i of the block at byte b.
std::string value_function(quant::Type type) {
  const quant::Coding& coding = quant::coding(type);
  std::string value = "u32_at(b)";
  if (type == quant::Type::f16) value = "bitcast<u32>(weft_from_f16(u16_at(b)))";
  if (type == quant::Type::bf16) value = "u16_at(b) << 16u";
  if (coding.bits > 0)
    value = fmt::format("bitcast<u32>(s.x * level(code(b, i)){})",
                        quant::has_minimum(coding.scales) ? " + s.y" : "");
  std::string text = "fn value(b: u32, i: u32) -> u32 {\n";
  if (coding.bits > 0)
    text += fmt::format("  let s = scale_min(factor(b), part(b, i / {}u));\n",
                        quant::group_elements(coding.scales));
  return text + "  return " + value + ";\n}\n";
}

}  // namespace

void dequantize(Context& context, const Step& step) {
  const quant::Type type = quant::type_from_name(step.attrs->text("type"));
  const quant::Traits& block = quant::traits(type);
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  Builder builder("dequantize");
  declare_blocks(context, builder, without_gaps(context, step.inputs[0]), type);
  builder.code += value_function(type);
  builder.code +=
      fmt::format("fn element(i: u32) -> Result {{ return Result(value(i / {0}u * {1}u, i % {0}u)); }}\n",
                  block.block_elements, block.block_bytes);
  builder.map(context, step.outputs);
}

}  // namespace weft::webgpu
