#include "backend/webgpu/interleaved.h"

#include <fmt/format.h>

#include "backend/webgpu/qmatmul.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// Bits of a code in each byte of a word.
uint32_t mask_of(int64_t bits) {
  return ((1u << bits) - 1) * 0x01010101u;
}

}  // namespace

void declare_interleaved(Context& context, Builder& builder, const Operand& packed,
                         const quant::Packing& packing) {
  const quant::Coding& coding = quant::coding(packing.type);
  const int64_t first = packing.planes.front().words,
                last = packing.planes.size() > 1 ? packing.planes.back().words : 0;
  const std::pair<const char*, uint32_t> planes[] = {{"FIRST", static_cast<uint32_t>(first)},
                                                     {"LAST", static_cast<uint32_t>(last)},
                                                     {"FIRST_MASK", mask_of(first)},
                                                     {"LAST_MASK", mask_of(last)},
                                                     {"TOGETHER", static_cast<uint32_t>(packing.together)},
                                                     {"SCALES", static_cast<uint32_t>(packing.scales.words)}};
  for (const auto& [name, value] : planes) builder.settings.push_back({name, value});
  builder.settings.push_back({"TABLE", !coding.table.empty()});
  builder.settings.push_back({"SIGNED", coding.bits == 8});
  declare_sections(context, builder, packed, packing);
  builder.code +=
      fmt::format("fn table(i: u32) -> u32 {{ return vec4<u32>({})[i]; }}\n", table_words(builder, coding));
  builder.code += embedded::webgpu_kernels("interleaved");
  builder.code += fmt::format(
      "fn scales(rows: Rows, block: u32) -> Scales {{ return with_offset(interleaved_{}(rows, block)); }}\n",
      name_of_scales(coding.scales));
}

}  // namespace weft::webgpu
