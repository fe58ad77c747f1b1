#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "array/half.h"
#include "base/paths.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "llm/model_file.h"
#include "quant/quant.h"
#include "support/program.h"
#include "support/scoped.h"
#include "weft/text.h"

using namespace weft;
using nlohmann::json;
using quant::Type;
namespace fs = std::filesystem;

namespace {

const fs::path kTokenizers = WEFT_SOURCE_DIR "/tests/data/tokenizers/hf";
constexpr int64_t kWidth = 64, kVocabulary = 520;  // 8 rows more than there are tokens

/// A llama of one layer in a folder of Hugging Face's, in bf16.
struct Folder {
  test::ScopedFolder place;
  fs::path path = place.path / "My-Llama", out = place.path / "out.gguf";
  std::map<std::string, HostTensor> tensors;

  Folder() {
    write_text(path / "config.json", json({{"model_type", "llama"},
                                           {"hidden_size", kWidth},
                                           {"num_hidden_layers", 1},
                                           {"num_attention_heads", 4},
                                           {"num_key_value_heads", 2},
                                           {"intermediate_size", 96},
                                           {"rms_norm_eps", 1e-6},
                                           {"rope_theta", 50000},
                                           {"vocab_size", kVocabulary},
                                           {"tie_word_embeddings", true},
                                           {"eos_token_id", 2}})
                                         .dump());
    const std::string layer = "model.layers.0.";
    for (const auto& [name, shape] : std::map<std::string, Shape>{
             {"model.embed_tokens.weight", {kVocabulary, kWidth}},
             {"model.norm.weight", {kWidth}},
             {layer + "input_layernorm.weight", {kWidth}},
             {layer + "post_attention_layernorm.weight", {kWidth}},
             {layer + "self_attn.q_proj.weight", {kWidth, kWidth}},
             {layer + "self_attn.k_proj.weight", {kWidth / 2, kWidth}},
             {layer + "self_attn.v_proj.weight", {kWidth / 2, kWidth}},
             {layer + "self_attn.o_proj.weight", {kWidth, kWidth}},
             {layer + "mlp.gate_proj.weight", {96, kWidth}},
             {layer + "mlp.up_proj.weight", {96, kWidth}},
             {layer + "mlp.down_proj.weight", {kWidth, 96}},
         })
      tensors[name] = random_tensor(shape);
    write_safetensors(path / "model.safetensors", tensors);
  }

  static HostTensor random_tensor(const Shape& shape) {
    std::mt19937 random(static_cast<unsigned>(element_count(shape)));
    std::normal_distribution<float> normal(0, 0.05f);
    HostTensor tensor{DType::bf16, shape, {}};
    tensor.bytes.resize(static_cast<size_t>(2 * element_count(shape)));
    for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
      const uint16_t value = float_to_bfloat(normal(random));
      std::memcpy(&tensor.bytes[i], &value, 2);
    }
    return tensor;
  }
  std::vector<float> values(const std::string& name) const {
    const HostTensor& tensor = tensors.at(name);
    std::vector<float> result(tensor.bytes.size() / 2);
    quant::dequantize(Type::bf16, tensor.bytes.data(), result.data(), result.size());
    return result;
  }
  test::Output quantize(const std::string& type) const {
    return test::run_weft({"quantize", path.string(), out.string(), type});
  }
};

}  // namespace

TEST_SUITE("base: quantize hf") {
  TEST_CASE("weights and numbers of a folder") {
    const Folder folder;
    const test::Output run = folder.quantize("q8_0");
    CAPTURE(run.errors);
    REQUIRE(run.status == 0);
    const Gguf file = Gguf::open(folder.out);
    CHECK(file.text("general.architecture") == "llama");
    CHECK(file.text("general.name") == "My-Llama");
    CHECK(file.integer("general.file_type") == 7);
    CHECK(file.integer("llama.block_count") == 1);
    CHECK(file.integer("llama.attention.head_count_kv") == 2);
    CHECK(file.number("llama.rope.freq_base") == 50000);
    CHECK(file.number("llama.attention.layer_norm_rms_epsilon") == doctest::Approx(1e-6));
    CHECK(file.tensors().size() == 11);
    CHECK_FALSE(file.contains("tokenizer.ggml.model"));  // the folder has none

    const auto bytes_of = [&](const char* name) {
      const std::span<const std::byte> data = file.tensors().at(name).data;
      return std::vector<std::byte>(data.begin(), data.end());
    };
    const auto encoded = [&](const std::string& name, Type type) {
      const std::vector<float> values = folder.values(name);
      std::vector<std::byte> bytes(quant::row_bytes(type, values.size()));
      quant::encode(type, values, bytes);
      return bytes;
    };
    CHECK(bytes_of("blk.0.attn_v.weight") == encoded("model.layers.0.self_attn.v_proj.weight", Type::q8_0));
    CHECK(bytes_of("blk.0.ffn_down.weight") == encoded("model.layers.0.mlp.down_proj.weight", Type::q8_0));
    CHECK(bytes_of("output_norm.weight") == encoded("model.norm.weight", Type::f32));

    // Queries are turned, so they are compared with what the reader of the folder gives.
    const std::vector<float> query = llm::ModelFile::open(folder.path).tensor("blk.0.attn_q.weight").values();
    std::vector<std::byte> expected(quant::row_bytes(Type::q8_0, query.size()));
    quant::encode(Type::q8_0, query, expected);
    CHECK(bytes_of("blk.0.attn_q.weight") == expected);
  }

  TEST_CASE("tokenizers give the same ids from the GGUF file") {
    for (const char* name : {"qwen2", "mistral", "gptoss"}) {
      CAPTURE(name);
      const Folder folder;
      for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
        fs::copy_file(kTokenizers / name / file, folder.path / file);
      write_text(folder.path / "chat_template.jinja", "{{ messages }}");
      const test::Output run = folder.quantize("f16");
      CAPTURE(run.errors);
      REQUIRE(run.status == 0);
      const Gguf file = Gguf::open(folder.out);
      CHECK(file.texts("tokenizer.ggml.tokens").size() == kVocabulary);
      CHECK(file.text("tokenizer.chat_template") == "{{ messages }}");
      const Tokenizer from_folder = Tokenizer::open(folder.path), from_file = Tokenizer::open(folder.out);
      CHECK(from_file.eos() == from_folder.eos());
      CHECK(from_file.encode("", {.add_special = true}) == from_folder.encode("", {.add_special = true}));
      const json suite = json::parse(*read_text(kTokenizers / fmt::format("{}.json", name)));
      for (const json& item : suite["cases"]) {
        const auto text = item["text"].get<std::string>();
        CAPTURE(text);
        CHECK(from_file.encode(text) == item["ids"].get<std::vector<TokenId>>());
        CHECK(from_file.encode(text, {.parse_special = true}) ==
              from_folder.encode(text, {.parse_special = true}));
      }
    }
  }

  TEST_CASE("null in a tokenizer.json is as good as nothing") {
    const Folder folder;
    json tokenizer = json::parse(*read_text(kTokenizers / "qwen2" / "tokenizer.json"));
    tokenizer["model"]["ignore_merges"] = nullptr;
    tokenizer["model"]["byte_fallback"] = nullptr;
    for (json& token : tokenizer["added_tokens"]) token["special"] = nullptr;
    write_text(folder.path / "tokenizer.json", tokenizer.dump());
    write_text(folder.path / "tokenizer_config.json", R"({"chat_template":[{"name":5,"template":5}]})");
    const test::Output run = folder.quantize("f16");
    CHECK(run.errors == "");
    CHECK(run.status == 0);
  }

  TEST_CASE("words of WordPiece are marked at their beginning") {
    const Folder folder;
    fs::copy_file(kTokenizers / "wordpiece-tokenizer.json", folder.path / "tokenizer.json");
    REQUIRE(folder.quantize("f16").status == 0);
    const Gguf file = Gguf::open(folder.out);
    CHECK(file.text("tokenizer.ggml.model") == "bert");
    const json vocabulary = json::parse(*read_text(folder.path / "tokenizer.json"))["model"]["vocab"];
    const std::vector<std::string_view> tokens = file.texts("tokenizer.ggml.tokens");
    size_t words = 0;
    for (const auto& [text, id] : vocabulary.items()) {
      const std::string_view token = tokens[id.get<size_t>()];
      if (text.starts_with("##")) CHECK(token == text.substr(2));
      words += token == "\u2581" + text;
    }
    CHECK(words > 20);
  }

  TEST_CASE("a safetensors file is the folder around it") {
    const Folder folder;
    REQUIRE(folder.quantize("q8_0").status == 0);
    const std::optional<std::string> want = read_text(folder.out);
    const std::string file = folder.path / "model.safetensors";
    CHECK(test::run_weft({"quantize", file, folder.out, "q8_0"}).status == 0);
    CHECK(read_text(folder.out) == want);
    fs::remove(folder.path / "config.json");
    const test::Output alone = test::run_weft({"quantize", file, folder.out, "q8_0"});
    CHECK(alone.status == 1);
    CHECK(alone.errors ==
          fmt::format("weft: [model] {}: there is no config.json beside it, and weights alone are no model\n",
                      file));
  }

  TEST_CASE("folders that cannot be converted") {
    const Folder folder;
    const auto message = [&] {
      const test::Output run = folder.quantize("q8_0");
      CHECK(run.status == 1);
      CHECK_FALSE(fs::exists(folder.out));
      return run.errors;
    };
    fs::copy_file(kTokenizers / "unigram-tokenizer.json", folder.path / "tokenizer.json");
    CHECK(message().find("a tokenizer of type 'Unigram' cannot be put into a GGUF file yet\n") !=
          std::string::npos);
    for (const char* bad :
         {"", "[]", "{}", R"({"model":3})", R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})",
          R"({"model":{"type":"BPE","vocab":{"a":4000000000000},"merges":[]}})",
          R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}})"}) {
      CAPTURE(bad);
      write_text(folder.path / "tokenizer.json", bad);
      CHECK(message().starts_with("weft: ["));
    }
    fs::remove(folder.path / "tokenizer.json");
    CHECK(folder.quantize("q8_0").status == 0);
    fs::remove(folder.out);
    write_text(folder.path / "config.json", R"({"model_type":"none"})");
    CHECK(message().starts_with("weft: ["));
    fs::remove(folder.path / "config.json");
    CHECK(message().starts_with("weft: ["));
  }
}
