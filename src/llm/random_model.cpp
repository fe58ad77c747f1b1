#include "llm/random_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"

namespace weft::llm {
namespace {

struct ShapeRow {
  std::string_view name;
  int64_t layers, width, hidden, heads, kv_heads, head_dim, vocabulary, experts = 0;
};

constexpr ShapeRow kShapes[] = {
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49'152},
    {"llama-1b", 16, 2048, 8192, 32, 8, 64, 128'256},
    {"llama-8b", 32, 4096, 14'336, 32, 8, 128, 128'256},
    {"llama-70b-1layer", 1, 8192, 28'672, 64, 8, 128, 128'256},
    {"mixtral-8x7b-2layer", 2, 4096, 14'336, 32, 8, 128, 32'000, 8},
};

/// Blocks of a normal distribution, the same few rows over and over.
std::vector<std::byte> random_blocks(quant::Type type, uint64_t bytes, double deviation) {
  constexpr size_t kElements = 1 << 14;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<float> values(kElements);
  for (float& x : values) x = normal(random);
  std::vector<std::byte> tile(quant::row_bytes(type, kElements));
  quant::encode(type, values, tile);
  std::vector<std::byte> result(bytes);
  for (size_t at = 0; at < bytes; at += tile.size())
    std::copy_n(tile.begin(), std::min<size_t>(tile.size(), bytes - at),
                result.begin() + static_cast<int64_t>(at));
  return result;
}

void add(ModelFile& model, const std::string& name, Shape shape, quant::Type type) {
  StoredTensor tensor{.shape = std::move(shape), .type = type, .read = {}};
  const double deviation = 1 / std::sqrt(static_cast<double>(tensor.shape.back()));
  tensor.read = [type, bytes = tensor.bytes(), deviation](std::vector<std::byte>& scratch) {
    scratch = random_blocks(type, bytes, deviation);
    return std::span<const std::byte>(scratch);
  };
  model.tensors[name] = std::move(tensor);
}

void add_ones(ModelFile& model, const std::string& name, int64_t size) {
  model.tensors[name] =
      StoredTensor::computed({size}, [size] { return std::vector<float>(static_cast<size_t>(size), 1); });
}

}  // namespace

ModelFile random_model(const std::string& shape_and_type) {
  const size_t colon = shape_and_type.find(':');
  const std::string name = shape_and_type.substr(0, colon);
  const quant::Type type =
      quant::type_from_name(colon == std::string::npos ? "q4_0" : shape_and_type.substr(colon + 1));
  const auto row = std::ranges::find(kShapes, name, &ShapeRow::name);
  if (row == std::end(kShapes)) {
    std::vector<std::string_view> names;
    for (const ShapeRow& r : kShapes) names.push_back(r.name);
    fail(ErrorKind::invalid, "[bench] shape '{}' is not known; these are: {}", name, fmt::join(names, ", "));
  }
  ModelFile model;
  model.name = shape_and_type;
  model.architecture = "llama";
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  model.values = {{"block_count", number(row->layers)},
                  {"embedding_length", number(row->width)},
                  {"feed_forward_length", number(row->hidden)},
                  {"attention.head_count", number(row->heads)},
                  {"attention.head_count_kv", number(row->kv_heads)},
                  {"attention.key_length", number(row->head_dim)},
                  {"attention.layer_norm_rms_epsilon", 1e-5},
                  {"context_length", number(131'072)}};
  // Rows that are no whole blocks (576 = 2.25 * 256) get a type that fits.
  const auto fitting = [](quant::Type wanted, int64_t k) {
    return k % quant::traits(wanted).block_elements == 0 ? wanted : quant::Type::q8_0;
  };
  // As in llama-quantize's files of this type, which others are measured with.
  const quant::Type table = type == quant::Type::q4_k ? quant::Type::q6_k : type;
  add(model, "token_embd.weight", {row->vocabulary, row->width}, fitting(table, row->width));
  add_ones(model, "output_norm.weight", row->width);
  if (row->experts > 0) {
    model.values["expert_count"] = number(row->experts);
    model.values["expert_used_count"] = number(2);
  }
  for (int64_t i = 0; i < row->layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    const auto matrix = [&](const std::string& tensor, int64_t n, int64_t k) {
      add(model, layer + tensor + ".weight", {n, k}, fitting(type, k));
    };
    add_ones(model, layer + "attn_norm.weight", row->width);
    add_ones(model, layer + "ffn_norm.weight", row->width);
    matrix("attn_q", row->heads * row->head_dim, row->width);
    matrix("attn_k", row->kv_heads * row->head_dim, row->width);
    matrix("attn_v", row->kv_heads * row->head_dim, row->width);
    matrix("attn_output", row->width, row->heads * row->head_dim);
    if (row->experts == 0) {
      matrix("ffn_gate", row->hidden, row->width);
      matrix("ffn_up", row->hidden, row->width);
      matrix("ffn_down", row->width, row->hidden);
      continue;
    }
    add(model, layer + "ffn_gate_inp.weight", {row->experts, row->width}, quant::Type::f32);
    add(model, layer + "ffn_gate_exps.weight", {row->experts, row->hidden, row->width},
        fitting(type, row->width));
    add(model, layer + "ffn_up_exps.weight", {row->experts, row->hidden, row->width},
        fitting(type, row->width));
    add(model, layer + "ffn_down_exps.weight", {row->experts, row->width, row->hidden},
        fitting(type, row->hidden));
  }
  return model;
}

}  // namespace weft::llm
