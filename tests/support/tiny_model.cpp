#include "support/tiny_model.h"

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "io/gguf_writer.h"

namespace weft::test {

void write_tiny_model(const std::filesystem::path& file, const TinyModel& shape) {
  const Gguf words = Gguf::open(WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf");
  GgufWriter writer;
  writer.set_all(words);
  writer.set("general.architecture", "llama");
  const auto number = [&](const std::string& key, int64_t value) {
    writer.set("llama." + key, static_cast<uint32_t>(value));
  };
  number("context_length", 2048);
  number("block_count", shape.layers);
  number("embedding_length", shape.width);
  number("feed_forward_length", shape.hidden);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dim);
  number("attention.value_length", shape.head_dim);
  writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5F);

  std::map<std::string, Shape> shapes;
  const auto type_of = [&](const std::string& name, const Shape& of) {
    return of.size() == 2 && name.starts_with("blk.") ? shape.type : quant::Type::f32;
  };
  const auto add = [&](const std::string& name, Shape of) {
    writer.add(name + ".weight", of, type_of(name, of));
    shapes[name + ".weight"] = std::move(of);
  };
  const int64_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  add("token_embd", {words.tensors().at("token_embd.weight").shape[0], shape.width});
  add("output_norm", {shape.width});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    add(layer + "attn_norm", {shape.width});
    add(layer + "ffn_norm", {shape.width});
    add(layer + "attn_q", {queries, shape.width});
    add(layer + "attn_k", {keys, shape.width});
    add(layer + "attn_v", {keys, shape.width});
    add(layer + "attn_output", {shape.width, queries});
    add(layer + "ffn_gate", {shape.hidden, shape.width});
    add(layer + "ffn_up", {shape.hidden, shape.width});
    add(layer + "ffn_down", {shape.width, shape.hidden});
  }
  std::mt19937 random(shape.seed);
  writer.write(file, [&](const std::string& name, const GgufWriter::Sink& sink) {
    const Shape& of = shapes.at(name);
    const bool norm = of.size() == 1;
    std::normal_distribution<float> normal(norm ? 1 : 0,
                                           norm ? 0.1F : 1.2F / std::sqrt(static_cast<float>(of.back())));
    std::vector<float> values(static_cast<size_t>(element_count(of)));
    for (float& x : values) x = normal(random);
    const quant::Type type = type_of(name, of);
    const auto columns = static_cast<size_t>(of.back());
    std::vector<std::byte> row(quant::row_bytes(type, columns));
    for (size_t at = 0; at < values.size(); at += columns) {
      quant::encode(type, std::span(values).subspan(at, columns), row);
      sink(row);
    }
  });
}

}  // namespace weft::test
