// Weights in ggml's blocks.
#include <fmt/format.h>

#include "backend/webgpu/interleaved.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/error.h"
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

/// Whether the codes of four elements are the same bits of four bytes, so that they can be had at once: 4
/// times fewer loads, which are what a software adapter spends its time with.
bool has_fours(quant::Type type) {
  return grid_of(type).empty() && type != quant::Type::tq1_0;
}

/// byte, code, factor, part, scale_min and level of a type whose blocks are w. `fours`: code is about four
/// elements.
void declare_blocks(Context& context, Builder& builder, const Operand& w, quant::Type type,
                    bool fours = false) {
  const quant::Coding& coding = quant::coding(type);
  const std::string_view name = quant::traits(type).name;
  builder.code = "fn byte(at: u32) -> u32 { return " +
                 builder.bits(w, "at + " + builder.number(w.layout.offset)) + "; }\n";
  builder.code += fmt::format("const EACH = {}u;\n", fours ? 0x01010101 : 1);
  builder.code +=
      fours ? fmt::format(
                  "fn codes(first: u32) -> u32 {{\n  let at = first + {1};\n"
                  "  let low = {0}[at / 4u] >> (at % 4u * 8u);\n  if (at % 4u == 0u) {{ return low; }}\n"
                  "  return low | ({0}[at / 4u + 1u] << (32u - at % 4u * 8u));\n}}\n",
                  builder.read(buffer_of(w)), builder.number(w.layout.offset))
            : "fn codes(at: u32) -> u32 { return byte(at); }\n";
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

// Loops of repack() end at numbers, not at constants: drivers would unroll them, and take three times as long
// to compile.

/// Word `word` of those of a unit of codes from `first` on: its pieces of codes (quant/packing.h), from bit
/// `from` on.
std::string codes_word(Builder& builder, uint32_t bits, int64_t first) {
  const uint32_t whole = 8 / bits, left = 8 % bits;
  return fmt::format(
      "      let all = word + {0};\n      var low = 0u;\n"
      "      for (var i = 0u; low < {1}; i++) {{\n"
      "        let rest = all * {4}u + max(low, {5}u) - {5}u;\n"
      "        let j = select({6}u + rest / {2}u, all * {3}u + i, i < {3}u);\n"
      "        let to = select(rest % {2}u, 0u, i < {3}u);\n"
      "        let count = min(8u - low, {2}u - to);\n"
      "        let mask = ((1u << count) - 1u) * 0x01010101u;\n"
      "        result |= ((codes_at(row, unit * 32u + 4u * j) >> to) & mask) << low;\n"
      "        low += count;\n      }}\n",
      builder.number(first), builder.number(8), bits, whole, left, 8 - left, bits * whole);
}

/// Word `word` of the scales' unit.
std::string scales_word(Builder& builder, quant::Scales scales) {
  using enum quant::Scales;
  switch (scales) {
    case half:
    case bfloat:
      return "      for (var e = unit * 64u; e < min(unit * 64u + 64u, size_k()); e += 32u) {\n"
             "        result |= factor_at(row, e) << (e % 64u / 2u);\n      }\n";
    case halves:
      return "      result = factor_at(row, unit * 32u);\n";
    case parts:
      return fmt::format(
          "      for (var g = 0u; g < {}; g++) {{ result |= part_at(row, unit * 32u + 16u * g) << (16u * g); "
          "}}\n",
          builder.number(2));
    case sixes:
      return fmt::format(
          "      if (word == 0u) {{ return factor_at(row, unit * 256u); }}\n"
          "      for (var g = 0u; g < {}; g++) {{\n"
          "        let part = part_at(row, unit * 256u + g * 32u);\n"
          "        let shift = g / 2u * 8u;\n"
          "        if (word == 1u + g % 2u * 2u) {{ result |= (part & 255u) << shift; }}\n"
          "        if (g % 2u == 1u) {{\n"
          "          result |= ((part >> (6u + 2u * word)) & 3u) << (shift + 6u);\n"
          "        }} else if (word == 2u) {{\n"
          "          result |= (part >> 8u) << shift;\n"
          "        }}\n      }}\n",
          builder.number(8));
    default:
      return fmt::format(
          "      if (word == 0u) {{ return factor_at(row, unit * 256u); }}\n"
          "      for (var g = 0u; g < {}; g++) {{\n"
          "        result |= part_at(row, unit * 256u + (word * 4u + g - 4u) * 16u) << (8u * g);\n"
          "      }}\n",
          builder.number(4));
  }
}

}  // namespace

std::string_view name_of_scales(quant::Scales scales) {
  static constexpr std::string_view kNames[] = {"half",    "bfloat", "halves", "sixes",
                                                "nibbles", "bytes",  "parts"};
  return kNames[static_cast<size_t>(scales)];
}

void quantize(Context& context, const Step& step) {
  const quant::Type type = quant::type_from_name(step.attrs->text("type"));
  if (type != quant::Type::q8_0 && type != quant::Type::q4_0)
    fail(ErrorKind::unsupported, "[webgpu] quantize makes q8_0 and q4_0, not {}", quant::traits(type).name);
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  Builder builder("quantize");
  builder.settings.push_back({"BYTES", quant::traits(type).block_bytes});
  builder.settings.push_back({"NIBBLES", type == quant::Type::q4_0});
  builder.code =
      "fn x(i: u32) -> f32 { return " + builder.load(contiguous(context, step.inputs[0]), "i") + "; }\n";
  builder.code += embedded::webgpu_kernels("quantize");
  builder.map(context, step.outputs);
}

void dequantize(Context& context, const Step& step) {
  const quant::Type type = quant::type_from_name(step.attrs->text("type"));
  const quant::Traits& block = quant::traits(type);
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  Builder builder("dequantize");
  declare_blocks(context, builder, without_gaps(context, step.inputs[0], 1), type);
  builder.code += value_function(type);
  builder.code +=
      fmt::format("fn element(i: u32) -> Result {{ return Result(value(i / {0}u * {1}u, i % {0}u)); }}\n",
                  block.block_elements, block.block_bytes);
  builder.elements = element_count(step.outputs[0].layout.shape);
  builder.map(context, step.outputs);
}

/// One invocation for each word.
void repack(Context& context, const Step& step) {
  const Operand& w = step.inputs[0];
  const quant::Type type = quant::type_from_name(step.attrs->text("type"));
  const quant::Traits& block = quant::traits(type);
  const quant::Coding& coding = quant::coding(type);
  const int64_t together = packed_together(w.layout.shape[0]);
  const quant::Packing packing(type, w.layout.shape[0], step.attrs->integer("k"), together);
  if (packing.size == 0) return;
  Builder builder("repack");
  const bool fours = has_fours(type);
  declare_blocks(context, builder, without_gaps(context, w, 1), type, fours);
  builder.code += fmt::format("fn size_k() -> u32 {{ return {}; }}\n", builder.number(packing.k));
  builder.code += fmt::format("fn block_at(row: u32, e: u32) -> u32 {{ return row * {} + e / {}u * {}u; }}\n",
                              builder.number(w.layout.shape[1]), block.block_elements, block.block_bytes);
  builder.code += fmt::format(
      "fn codes_at(row: u32, e: u32) -> u32 {{\n  let b = block_at(row, e);\n  let i = e % {}u;\n{}}}\n"
      "fn factor_at(row: u32, e: u32) -> u32 {{ return factor(block_at(row, e)); }}\n"
      "fn part_at(row: u32, e: u32) -> u32 {{ return part(block_at(row, e), e % {}u / {}u); }}\n",
      block.block_elements,
      fours ? "  return code(b, i);\n"
            : "  return code(b, i) | (code(b, i + 1u) << 8u) | (code(b, i + 2u) << 16u) | (code(b, i + 3u) "
              "<< 24u);\n",
      block.block_elements, quant::group_elements(coding.scales));
  // The sections one after the other; rows that fill up the last 16 are zeros.
  builder.code += "fn word_at(i: u32) -> u32 {\n  var result = 0u;\n";
  const auto section = [&](const quant::Section& s, const std::string& text) {
    // Rows lie together word by word on a software adapter, unit by unit on others.
    const int64_t before = context.software ? 1 : s.words, behind = s.words / before;
    builder.code += fmt::format(
        "  if (i >= {0}) {{\n    let at = i - {0};\n"
        "    let word = at % {2}u + at / {6}u % {3}u * {2}u;\n"
        "    let unit = at / {7}u % {1};\n    let row = at / {7}u / {1} * {8}u + at / {2}u % {8}u;\n"
        "    if (row < {4}) {{\n{5}    }}\n    return result;\n  }}\n",
        builder.number(s.start), builder.number(s.units), before, behind, builder.number(packing.n), text,
        before * together, s.words * together, together);
  };
  section(packing.scales, scales_word(builder, coding.scales));
  if (packing.codes.size() > 1)
    section(packing.codes.back(), codes_word(builder, coding.bits, packing.codes.front().words));
  section(packing.codes.front(), codes_word(builder, coding.bits, 0));
  builder.code += "  return result;\n}\nfn element(i: u32) -> Result { return Result(word_at(i)); }\n";
  builder.map(context, step.outputs);
}

quant::Packing packing_of(const Step& step) {
  const int64_t n = step.attrs->integer("n");
  return {quant::type_from_name(step.attrs->text("type")), n, step.attrs->integer("k"), packed_together(n)};
}

Operand unpacked_weights(Context& context, const Step& product, DType dtype) {
  const Layout layout = Layout::contiguous({product.attrs->integer("n"), product.attrs->integer("k")});
  const auto bytes = element_count(layout.shape) * static_cast<int64_t>(size_of(dtype));
  const Operand w{std::make_shared<WebgpuStorage>(context.scratch((bytes + 3) / 4, "weights")), dtype,
                  layout};
  dequantize_packed(
      context,
      {.kernel = "dequantize_packed", .inputs = {product.inputs[1]}, .outputs = {w}, .attrs = product.attrs});
  return w;
}

void dequantize_packed(Context& context, const Step& step) {
  const quant::Packing packing = packing_of(step);
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  const Operand& out = step.outputs[0];
  Builder builder("dequantize_packed");
  if (context.software)
    declare_interleaved(context, builder, step.inputs[0], packing);
  else
    declare_packed(context, builder, step.inputs[0], packing, false);
  builder.code += fmt::format("fn size_n() -> u32 {{ return {}; }}\n", builder.number(packing.n));
  builder.code += "fn store8(at: u32, low: vec4<f32>, high: vec4<f32>) {\n";
  const std::string to = builder.write(buffer_of(out), 4);
  if (out.dtype == DType::f32)
    builder.code += fmt::format(
        "  {0}[2u * at] = bitcast<vec4<u32>>(low);\n  {0}[2u * at + 1u] = bitcast<vec4<u32>>(high);\n}}\n",
        to);
  else
    builder.code += fmt::format(
        "  {}[at] = vec4<u32>(halves_of(low.xy), halves_of(low.zw), halves_of(high.xy), "
        "halves_of(high.zw));\n}}\n"
        "fn halves_of(x: vec2<f32>) -> u32 {{ return weft_to_f16(x.x) | (weft_to_f16(x.y) << 16u); }}\n",
        to);
  // Blocks of four rows at a time where they are interleaved.
  const int64_t places =
      context.software ? (packing.n + 3) / 4 * (packing.k / 32) : packing.n * packing.k / 8;
  builder.code += embedded::webgpu_kernels(context.software ? "dequantize_interleaved" : "dequantize_packed");
  builder.groups(context, (places + 255) / 256, 256, "  dequantize(index * 256u + thread);\n");
}

}  // namespace weft::webgpu
