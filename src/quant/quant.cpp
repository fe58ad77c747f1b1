#include "quant/quant.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/importance.h"

namespace weft::quant {
namespace {

constexpr int8_t kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Digits of a grid (grids.h), then the same with a minus; in iq1 three levels moved up by an eighth, then
// down.
constexpr int8_t kIq2[] = {8, 25, 43, 0, -8, -25, -43, 0};
constexpr int8_t kIq3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
constexpr int8_t kIq3S[] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
constexpr int8_t kIq1[] = {-7, 1, 9, 0, -9, -1, 7, 0};
// Twice the values of e2m1, so that they are integers; the scales are halved in return.
constexpr int8_t kE2m1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct Row {
  Type type;
  Traits traits;
  Coding coding = {};
  Unpack* unpack = nullptr;
  Pack* pack = nullptr;
  WeightedPack* weighted_pack = nullptr;
};

// In the order of Type: name, ggml's number, elements and bytes of a block; bits of a code, scales, offset or
// table.
constexpr Row kRows[] = {
    {Type::f16, {"f16", 1, 1, 2}},
    {Type::bf16, {"bf16", 30, 1, 2}},
    {Type::f32, {"f32", 0, 1, 4}},
    {Type::q4_0, {"q4_0", 2, 32, 18}, {4, Scales::half, 8}, unpack_q4_0, pack_q4_0},
    {Type::q4_1, {"q4_1", 3, 32, 20}, {4, Scales::halves, 0}, unpack_q4_1, pack_q4_1},
    {Type::q5_0, {"q5_0", 6, 32, 22}, {5, Scales::half, 16}, unpack_q5_0, pack_q5_0},
    {Type::q5_1, {"q5_1", 7, 32, 24}, {5, Scales::halves, 0}, unpack_q5_1, pack_q5_1},
    {Type::q8_0, {"q8_0", 8, 32, 34}, {8, Scales::half, 0}, unpack_q8_0, pack_q8_0},
    {Type::q2_k, {"q2_k", 10, 256, 84}, {2, Scales::nibbles, 0}, unpack_q2_k, pack_q2_k},
    {Type::q3_k, {"q3_k", 11, 256, 110}, {3, Scales::bytes, 4}, unpack_q3_k, pack_q3_k},
    {Type::q4_k, {"q4_k", 12, 256, 144}, {4, Scales::sixes, 0}, unpack_q4_k, pack_q4_k},
    {Type::q5_k, {"q5_k", 13, 256, 176}, {5, Scales::sixes, 0}, unpack_q5_k, pack_q5_k},
    {Type::q6_k, {"q6_k", 14, 256, 210}, {6, Scales::bytes, 32}, unpack_q6_k, pack_q6_k},
    {Type::q8_k, {"q8_k", 15, 256, 292}, {8, Scales::bytes, 0}, unpack_q8_k, pack_q8_k},
    {Type::iq4_nl, {"iq4_nl", 20, 32, 18}, {4, Scales::half, 0, kIq4}, unpack_iq4_nl, pack_iq4_nl},
    {Type::iq4_xs, {"iq4_xs", 23, 256, 136}, {4, Scales::bytes, 0, kIq4}, unpack_iq4_xs, pack_iq4_xs},
    {Type::iq2_xxs,
     {"iq2_xxs", 16, 256, 66},
     {3, Scales::bytes, 0, kIq2},
     unpack_iq2_xxs,
     nullptr,
     pack_iq2_xxs},
    {Type::iq2_xs, {"iq2_xs", 17, 256, 74}, {3, Scales::bytes, 0, kIq2}, unpack_iq2_xs, nullptr, pack_iq2_xs},
    {Type::iq2_s, {"iq2_s", 22, 256, 82}, {3, Scales::bytes, 0, kIq2}, unpack_iq2_s, nullptr, pack_iq2_s},
    {Type::iq3_xxs,
     {"iq3_xxs", 18, 256, 98},
     {4, Scales::bytes, 0, kIq3Xxs},
     unpack_iq3_xxs,
     nullptr,
     pack_iq3_xxs},
    {Type::iq3_s, {"iq3_s", 21, 256, 110}, {4, Scales::bytes, 0, kIq3S}, unpack_iq3_s, pack_iq3_s},
    {Type::iq1_s, {"iq1_s", 19, 256, 50}, {3, Scales::bytes, 0, kIq1}, unpack_iq1_s, nullptr, pack_iq1_s},
    {Type::iq1_m, {"iq1_m", 29, 256, 56}, {3, Scales::bytes, 0, kIq1}, unpack_iq1_m, nullptr, pack_iq1_m},
    {Type::tq1_0, {"tq1_0", 34, 256, 54}, {2, Scales::bytes, 1}, unpack_tq1_0, pack_tq1_0},
    {Type::tq2_0, {"tq2_0", 35, 256, 66}, {2, Scales::bytes, 1}, unpack_tq2_0, pack_tq2_0},
    {Type::mxfp4, {"mxfp4", 39, 32, 17}, {4, Scales::bfloat, 0, kE2m1}, unpack_mxfp4, pack_mxfp4},
    {Type::nvfp4, {"nvfp4", 40, 64, 36}, {4, Scales::parts, 0, kE2m1}, unpack_nvfp4, pack_nvfp4},
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

void widen(Type type, const uint8_t* from, float* out, uint64_t count) {
  if (type == Type::f32 && count > 0) std::memcpy(out, from, 4 * count);
  for (uint64_t i = 0; i < count && type == Type::f16; ++i) out[i] = half_to_float(u16_at(from + 2 * i));
  for (uint64_t i = 0; i < count && type == Type::bf16; ++i) out[i] = bfloat_to_float(u16_at(from + 2 * i));
}

void narrow(Type type, std::span<const float> from, uint8_t* out) {
  if (type == Type::f32 && !from.empty()) std::memcpy(out, from.data(), from.size_bytes());
  for (size_t i = 0; i < from.size() && type == Type::f16; ++i) put_half(out + 2 * i, from[i]);
  for (size_t i = 0; i < from.size() && type == Type::bf16; ++i)
    put_u16(out + 2 * i, float_to_bfloat(from[i]));
}

void check_finite(std::span<const float> row) {
  const auto odd = std::ranges::find_if_not(row, [](float x) { return std::isfinite(x); });
  if (odd != row.end())
    fail(ErrorKind::invalid, "[quant] element {} of a row is {}: only finite values can be encoded",
         odd - row.begin(), *odd);
}

/// out[i] = scale * level of codes[i] (+ min, only where the type has one: it would turn -0 into 0)
void put_values(const Coding& coding, const uint8_t* __restrict codes, ScaleMin s, uint32_t count,
                float* __restrict out) {
  if (!coding.table.empty()) {
    for (uint32_t i = 0; i < count; ++i) out[i] = s.scale * static_cast<float>(coding.table[codes[i]]);
  } else if (coding.bits == 8) {
    for (uint32_t i = 0; i < count; ++i) out[i] = s.scale * static_cast<float>(static_cast<int8_t>(codes[i]));
  } else if (!has_minimum(coding.scales)) {
    for (uint32_t i = 0; i < count; ++i) out[i] = s.scale * static_cast<float>(codes[i] - coding.offset);
  } else {
    for (uint32_t i = 0; i < count; ++i) out[i] = s.scale * static_cast<float>(codes[i]) + s.min;
  }
}

}  // namespace

const Traits& traits(Type type) {
  return row(type).traits;
}
const Coding& coding(Type type) {
  return row(type).coding;
}
Unpack* unpacker(Type type) {
  return row(type).unpack;
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

ScaleMin scale_min(Scales scales, uint32_t factor, uint32_t part) {
  const auto low = static_cast<uint16_t>(factor), high = static_cast<uint16_t>(factor >> 16);
  switch (scales) {
    case Scales::half:
      return {half_to_float(low), 0};
    case Scales::bfloat:
      return {bfloat_to_float(low), 0};
    case Scales::halves:
      return {half_to_float(low), half_to_float(high)};
    case Scales::sixes:
      return {half_to_float(low) * static_cast<float>(part & 255),
              -half_to_float(high) * static_cast<float>(part >> 8)};
    case Scales::nibbles:
      return {half_to_float(low) * static_cast<float>(part & 15),
              -half_to_float(high) * static_cast<float>(part >> 4)};
    case Scales::bytes:
      return {std::bit_cast<float>(factor) * static_cast<float>(static_cast<int8_t>(part)), 0};
    case Scales::parts:
      return {half_to_float(static_cast<uint16_t>(part)), 0};
  }
  return {};
}

void dequantize(Type type, const std::byte* blocks, float* out, uint64_t elements) {
  const Row& r = row(type);
  const uint64_t count = blocks_of(r.traits, elements);
  const auto* from = reinterpret_cast<const uint8_t*>(blocks);
  if (!r.unpack) return widen(type, from, out, count);
  const uint32_t group = group_elements(r.coding.scales);
  Unpacked block{};
  for (uint64_t i = 0; i < count; ++i, from += r.traits.block_bytes, out += r.traits.block_elements) {
    r.unpack(from, block);
    for (uint32_t at = 0; at < r.traits.block_elements; at += group)
      put_values(r.coding, block.codes + at,
                 scale_min(r.coding.scales, block.factor, block.parts[at / group]), group, out + at);
  }
}

float put_half(uint8_t* p, float scale) {
  const uint16_t half = float_to_half(scale);
  if ((half & 0x7c00) == 0x7c00)
    fail(ErrorKind::invalid, "[quant] the values are too large: f16 has no room for {:g}", scale);
  put_u16(p, half);
  return half_to_float(half);
}

bool needs_importance(Type type) {
  return type == Type::iq2_xxs || type == Type::iq2_xs || type == Type::iq1_s;
}

void encode(Type type, std::span<const float> row_values, std::span<std::byte> out) {
  encode(type, row_values, out, {});
}

void encode(Type type, std::span<const float> row_values, std::span<std::byte> out,
            std::span<const float> importance) {
  const Row& r = row(type);
  if (!importance.empty() && importance.size() != row_values.size())
    fail(ErrorKind::invalid, "[quant] {} elements have the importance of {}", row_values.size(),
         importance.size());
  if (out.size() != row_bytes(type, row_values.size()))
    fail(ErrorKind::invalid, "[quant] {} elements of {} take {} bytes, not {}", row_values.size(),
         r.traits.name, row_bytes(type, row_values.size()), out.size());
  check_finite(row_values);
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  if (!r.unpack) return narrow(type, row_values, to);
  if (needs_importance(type) && importance.empty() && !row_values.empty())
    fail(ErrorKind::invalid, "[quant] {} needs to know which elements are important", r.traits.name);
  for (size_t at = 0; at < row_values.size(); at += r.traits.block_elements, to += r.traits.block_bytes)
    if (r.weighted_pack)
      r.weighted_pack(row_values.data() + at, importance.empty() ? nullptr : importance.data() + at, to);
    else
      r.pack(row_values.data() + at, to);
}

}  // namespace weft::quant
