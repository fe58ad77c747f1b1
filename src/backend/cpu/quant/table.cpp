#include <fmt/ranges.h>

#include <limits>
#include <vector>

#include "backend/cpu/quant.h"
#include "backend/cpu/quant/blocks.h"
#include "base/error.h"

namespace weft::quant {
namespace {

struct Row {
  Type type;
  Traits traits;
  Decode* decode;
};

// In the order of Type: name, ggml's number, elements and bytes of a block.
constexpr Row kRows[] = {
    {Type::f16, {"f16", 1, 1, 2}, decode_f16},
    {Type::bf16, {"bf16", 30, 1, 2}, decode_bf16},
    {Type::f32, {"f32", 0, 1, 4}, decode_f32},
    {Type::q4_0, {"q4_0", 2, 32, 18}, decode_q4_0},
    {Type::q4_1, {"q4_1", 3, 32, 20}, decode_q4_1},
    {Type::q5_0, {"q5_0", 6, 32, 22}, decode_q5_0},
    {Type::q5_1, {"q5_1", 7, 32, 24}, decode_q5_1},
    {Type::q8_0, {"q8_0", 8, 32, 34}, decode_q8_0},
    {Type::q2_k, {"q2_k", 10, 256, 84}, decode_q2_k},
    {Type::q3_k, {"q3_k", 11, 256, 110}, decode_q3_k},
    {Type::q4_k, {"q4_k", 12, 256, 144}, decode_q4_k},
    {Type::q5_k, {"q5_k", 13, 256, 176}, decode_q5_k},
    {Type::q6_k, {"q6_k", 14, 256, 210}, decode_q6_k},
    {Type::q8_k, {"q8_k", 15, 256, 292}, decode_q8_k},
    {Type::iq4_nl, {"iq4_nl", 20, 32, 18}, decode_iq4_nl},
    {Type::iq4_xs, {"iq4_xs", 23, 256, 136}, decode_iq4_xs},
    {Type::iq2_xxs, {"iq2_xxs", 16, 256, 66}, decode_iq2_xxs},
    {Type::iq2_xs, {"iq2_xs", 17, 256, 74}, decode_iq2_xs},
    {Type::iq2_s, {"iq2_s", 22, 256, 82}, decode_iq2_s},
    {Type::iq3_xxs, {"iq3_xxs", 18, 256, 98}, decode_iq3_xxs},
    {Type::iq3_s, {"iq3_s", 21, 256, 110}, decode_iq3_s},
    {Type::iq1_s, {"iq1_s", 19, 256, 50}, decode_iq1_s},
    {Type::iq1_m, {"iq1_m", 29, 256, 56}, decode_iq1_m},
    {Type::tq1_0, {"tq1_0", 34, 256, 54}, decode_tq1_0},
    {Type::tq2_0, {"tq2_0", 35, 256, 66}, decode_tq2_0},
    {Type::mxfp4, {"mxfp4", 39, 32, 17}, decode_mxfp4},
    {Type::nvfp4, {"nvfp4", 40, 64, 36}, decode_nvfp4},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].type != static_cast<Type>(i)) return false;
  return std::size(kRows) == kTypes;
}
static_assert(in_order());

const Row& row(Type type) {
  return kRows[static_cast<size_t>(type)];
}

uint64_t blocks_of(const Traits& t, uint64_t elements) {
  if (elements % t.block_elements != 0)
    fail(ErrorKind::invalid, "[quant] {} elements are not a whole number of {} blocks, which hold {} each",
         elements, t.name, t.block_elements);
  return elements / t.block_elements;
}

}  // namespace

const Traits& traits(Type type) {
  return row(type).traits;
}

Type type_from_name(std::string_view name) {
  for (const Row& r : kRows)
    if (r.traits.name == name) return r.type;
  std::vector<std::string_view> names;
  for (const Row& r : kRows) names.push_back(r.traits.name);
  fail(ErrorKind::invalid, "[quant] no type is called '{}': use one of {}", name, fmt::join(names, " "));
}

std::optional<Type> type_from_ggml(int id) {
  for (const Row& r : kRows)
    if (r.traits.ggml_id == id) return r.type;
  return std::nullopt;
}

uint64_t row_bytes(Type type, uint64_t elements) {
  const Traits& t = traits(type);
  const uint64_t blocks = blocks_of(t, elements);
  if (blocks > std::numeric_limits<uint64_t>::max() / t.block_bytes)  // a damaged file can claim any size
    fail(ErrorKind::invalid, "[quant] {} elements of {} do not fit into memory", elements, t.name);
  return blocks * t.block_bytes;
}

void dequantize(Type type, const std::byte* blocks, float* out, uint64_t elements) {
  const Row& r = row(type);
  r.decode(reinterpret_cast<const uint8_t*>(blocks), out, blocks_of(r.traits, elements));
}

}  // namespace weft::quant
