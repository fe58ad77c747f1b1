#include "backend/webgpu/interleaved.h"

#include <fmt/format.h>

#include "backend/webgpu/qmatmul.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
void declare_interleaved(Context& context, Builder& builder, const Operand& packed,
                         const quant::Packing& packing) {
  const quant::Coding& coding = quant::coding(packing.type);
  const std::pair<const char*, int64_t> numbers[] = {
      {"FIRST", packing.codes.front().words},
      {"LAST", packing.codes.size() > 1 ? packing.codes.back().words : 0},
      {"TOGETHER", packing.together},
      {"SCALES", packing.scales.words}};
  for (const auto& [name, value] : numbers) builder.settings.push_back({name, static_cast<uint32_t>(value)});
  builder.settings.push_back({"TABLE", !coding.table.empty()});
  builder.settings.push_back({"SIGNED", coding.bits == 8});
  declare_sections(context, builder, packed, packing);
  builder.code +=
      fmt::format("fn table(i: u32) -> u32 {{ return vec4<u32>({})[i]; }}\n", table_words(builder, coding));
  builder.code += embedded::webgpu_kernels("interleaved");
  const auto word = [](uint32_t i) { return fmt::format("words[{}]", i); };
  builder.code += fmt::format(
      "fn code_bytes(words: array<vec4<u32>, FIRST + LAST>) -> array<vec4<u32>, 8> {{\n"
      "  return array<vec4<u32>, 8>(\n    {});\n}}\n",
      fmt::join(code_bytes(coding.bits, word, "vec4<u32>"), ",\n    "));
  builder.code += fmt::format(
      "fn scales(rows: Rows, block: u32) -> Scales {{ return with_offset(interleaved_{}(rows, block)); }}\n",
      name_of_scales(coding.scales));
}

}  // namespace weft::webgpu
