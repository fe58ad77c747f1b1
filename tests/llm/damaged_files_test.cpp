// Files of models that are made to crash, to hang or to mislead: each is an error of one line.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "llm/verify.h"
#include "support/gguf_file.h"
#include "support/model_copy.h"

using namespace weft;
using namespace weft::llm;
using nlohmann::json;
using test::Copy;
using test::error_of;
using test::kModels;
namespace fs = std::filesystem;

namespace {

/// What opening a model of tests/data says that `change` was done to.
std::string with(const std::string& name, const std::function<void(ModelFile&)>& change) {
  ModelFile file = ModelFile::open(kModels / name);
  file.name = "FILE";
  change(file);
  return error_of([&] { Model(std::move(file), {.context = 16}); }).message;
}

std::string with_value(const std::string& name, const std::string& key, const ModelFile::Value& value) {
  return with(name, [&](ModelFile& file) { file.values[key] = value; });
}

HostTensor zeros(const Shape& shape, DType dtype = DType::f32) {
  return {dtype, shape, std::vector<std::byte>(static_cast<size_t>(element_count(shape)) * size_of(dtype))};
}

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace

TEST_SUITE("base: damaged models") {
  TEST_CASE("sizes that are read off a tensor are those of its right number of dims") {
    for (const auto& [model, tensor] : {std::pair{"lfm2", "blk.0.ffn_up.weight"},
                                        {"gpt2", "blk.0.ffn_up.weight"},
                                        {"deepseek2", "blk.0.attn_kv_a_norm.weight"},
                                        {"deepseek3", "blk.0.attn_q_a.weight"},
                                        {"qwen2moe", "blk.1.ffn_up_shexp.weight"},
                                        {"bert", "token_types.weight"}}) {
      CAPTURE(model);
      const std::string message = with(model, [&](ModelFile& file) {
        REQUIRE(file.has(tensor));
        file.tensors[tensor].shape = {};
      });
      CHECK(message.starts_with(fmt::format("[model] FILE: tensor '{}' is (), expected", tensor)));
    }
  }

  TEST_CASE("a tensor without values is refused, whatever stands beside the 0") {
    const Copy copy("gpt2");
    copy.change([](auto& tensors) {
      for (auto& [name, tensor] : tensors)
        if (name.ends_with("h.0.attn.c_attn.weight")) tensor = zeros({int64_t{1} << 59, 0, 2});
    });
    CHECK(copy.complaint().ends_with("which has no values"));
    test::GgufFile file;
    file.text("general.architecture", "llama").tensor("x", {1, 0}, 0, "");
    write_text(copy.path / "m.gguf", file.file());
    CHECK(copy.without_path(error_of([&] { ModelFile::open(copy.path / "m.gguf"); }).message) ==
          "[model] FOLDER/m.gguf: tensor 'x' is (0,1), which has no values");
    file.tensor("y", {uint64_t{1} << 62}, 0, "");
    write_text(copy.path / "m.gguf", file.file());
    CHECK(copy.without_path(error_of([&] { ModelFile::open(copy.path / "m.gguf"); }).message) ==
          "[gguf] FOLDER/m.gguf: tensor 'y': dim 0 is 4611686018427387904");
  }

  TEST_CASE("numbers that no model has") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(with_value("llama", "rope.freq_base", nan) == "[model] FILE: 'rope.freq_base' is nan, no number");
    CHECK(with_value("llama", "rope.freq_base", 0.0) ==
          "[model] FILE: 'rope.freq_base' is 0; above 0 is needed");
    CHECK(with_value("llama", "attention.scale", nan).ends_with("'attention.scale' is nan, no number"));
    CHECK(with_value("llama", "attention.sliding_window", -1.0) ==
          "[model] FILE: 'attention.sliding_window' is -1; 0 is the least");
    CHECK(with_value("llama", "attention.layer_norm_rms_epsilon", -1.0) ==
          "[model] FILE: the epsilon of norms is -1");
    CHECK(with_value("gemma2", "attention.sliding_window", -1.0).ends_with("0 is the least"));
    CHECK(with_value("gemma3", "rope.freq_base_swa", -1.0).ends_with("above 0 is needed"));
    CHECK(with_value("llama", "attention.layer_windows", std::vector<double>{4, nan}).ends_with("no number"));
  }

  TEST_CASE("a list of numbers per layer is read once, not once per layer") {
    CHECK(with("llama", [](ModelFile& file) {
            file.values["block_count"] = 10'000.0;
            for (const char* key : {"attention.head_count", "attention.head_count_kv", "feed_forward_length"})
              file.values[key] = std::vector<double>(200'000, 4);
          }).starts_with("[model] FILE: tensor"));
  }

  TEST_CASE("heads are as large as the tensors say, so tables of angles are as well") {
    CHECK(with_value("llama", "attention.key_length", 1048576.0).ends_with("at most 65536"));
    CHECK(with_value("llama", "attention.key_length", 65536.0)
              .ends_with("too small for 4 heads of 65536 elements"));
  }

  TEST_CASE("heads that do not share keys are refused before their rows are put in another order") {
    const auto told = [](const json& kv_heads) {
      const Copy copy("falcon-grouped");
      copy.set("num_kv_heads", kv_heads);
      copy.set("num_key_value_heads", kv_heads);
      return error_of([&] { ModelFile::open(copy.path); }).message;
    };
    for (const json& wrong : {json(0), json(3), json(-2), json(1e300), json(1.5)}) {
      CAPTURE(wrong);
      CHECK(told(wrong).find("query heads do not share") != std::string::npos);
    }
  }

  TEST_CASE("groups of codes that are not whole words") {
    for (const auto& [bits, size] : {std::pair<int64_t, int64_t>{8, 67}, {1, 31}, {0, 32}, {8, 0}}) {
      const Copy copy("llama");
      copy.set("quantization", {{"bits", bits}, {"group_size", size}});
      copy.change([bits = bits, size = size](auto& tensors) {
        const std::string stem = "model.layers.0.mlp.up_proj";
        tensors[stem + ".weight"] = zeros({48, std::max<int64_t>(1, size * bits / 32)}, DType::u32);
        tensors[stem + ".scales"] = tensors[stem + ".biases"] = zeros({48, 1});
      });
      CHECK(copy.complaint().find("are no groups of") != std::string::npos);
    }
  }

  TEST_CASE("a tensor is in one file of a folder") {
    const Copy copy("llama");
    fs::rename(copy.path / "model.safetensors", copy.path / "a.safetensors");
    write_safetensors(copy.path / "b.safetensors", {{"model.norm.weight", zeros({32})}});
    write_text(copy.path / "model.safetensors.index.json",
               R"({"weight_map":{"model.norm.weight":"a.safetensors","x":"b.safetensors"}})");
    CHECK(
        copy.complaint() ==
        "[model] tensor 'model.norm.weight' is in two files: FOLDER/a.safetensors and FOLDER/b.safetensors");
  }

  TEST_CASE("an adapter is pairs, at least one, with a scale") {
    const Copy copy("llama");
    const std::string up = "base_model.model.model.layers.1.mlp.up_proj.lora_";
    const HostTensor a = zeros({2, 32}), b = zeros({48, 2});
    const auto told = [&](const std::map<std::string, HostTensor>& tensors, double scale,
                          const std::string& config) {
      write_text(copy.path / "adapter_config.json", config);
      write_safetensors(copy.path / "adapter_model.safetensors", tensors);
      return copy.without_path(error_of([&] {
                                 Model(kModels / "llama", {.context = 16, .adapters = {{copy.path, scale}}});
                               }).message);
    };
    const std::string config = R"({"lora_alpha":8,"r":2})";
    CHECK(told({{up + "B.weight", b}}, 1, config) ==
          "[model] FOLDER: tensor 'blk.1.ffn_up.weight.lora_a' is missing");
    CHECK(told({{up + "A.weight", a}}, 1, config).ends_with("lora_b' is missing"));
    CHECK(told({}, 1, config) == "[model] FOLDER: there is no adapter in it");
    CHECK(told({{up + "A.weight", a}, {up + "B.weight", b}}, NAN, config) ==
          "[model] FOLDER: its scale is nan");
    CHECK(
        told({{up + "A.weight", a}, {up + "B.weight", b}}, 1, R"({"lora_alpha":8,"r":-2,"use_rslora":true})")
            .ends_with("nan, no number"));
    // A complete model is none.
    test::GgufFile whole;
    whole.text("general.architecture", "llama").tensor("output_norm.weight", {1}, 0, "1234");
    write_text(copy.path / "m.gguf", whole.file());
    CHECK(copy.without_path(
              error_of([&] {
                Model(kModels / "llama", {.context = 16, .adapters = {{copy.path / "m.gguf", 1.0}}});
              }).message) == "[model] FOLDER/m.gguf: 'output_norm.weight' is no part of a LoRA adapter");
  }

  TEST_CASE("expected logits are of at least one token of one text") {
    const test::ScopedFolder folder;
    for (const Shape& shape : {Shape{0, int64_t{1} << 58}, Shape{1, 0}}) {
      const HostTensor ids{DType::i32, shape, {}}, logits{DType::f32, {shape[0], shape[1], 1}, {}};
      write_safetensors(folder.path / "e.safetensors", {{"input_ids", ids}, {"logits", logits}});
      CHECK(error_of([&] {
              load_expected(folder.path / "e.safetensors");
            }).message.find("do not go together") != std::string::npos);
    }
  }

  TEST_CASE("JSON that is nested deeply, and a config that is no regular file") {
    for (const auto& [open, close] : {std::pair{"[", "]"}, {"{\"a\":", "}"}}) {
      const Copy copy("llama");
      write_text(copy.path / "config.json", fmt::format(R"({{"model_type":"llama","x":{}1{}}})",
                                                        repeated(open, 200'000), repeated(close, 200'000)));
      CHECK(copy.complaint() == "[model] FOLDER/config.json: JSON nested deeper than 100 levels");
    }
    const Copy copy("llama");
    fs::remove(copy.path / "config.json");
    REQUIRE(mkfifo((copy.path / "config.json").c_str(), 0600) == 0);
    CHECK(copy.complaint() == "[io] cannot open FOLDER/config.json: not a regular file");
    fs::remove(copy.path / "config.json");
    fs::create_symlink("/dev/zero", copy.path / "config.json");
    CHECK(copy.complaint() == "[io] cannot open FOLDER/config.json: not a regular file");
  }

  TEST_CASE("words out of a file stay on one line") {
    const std::string odd = "x\n\x1b[31m";
    const Copy copy("llama");
    write_text(copy.path / "m.gguf", test::GgufFile().text("general.architecture", odd).file());
    const std::string told = copy.without_path(error_of([&] { Model(copy.path / "m.gguf", {}); }).message);
    CHECK(told.starts_with("[model] architecture 'x??[31m' is not known"));
    CHECK(told.ends_with("; it is that of FOLDER/m.gguf"));
    CHECK(error_of([&] {
            Model(kModels / "llama", {.adapters = {{copy.path / "m.gguf", 1.0}}});
          }).message.ends_with("an adapter for x??[31m, not for llama"));
    copy.set("rope_parameters", {{"rope_type", odd}});
    CHECK(copy.complaint().ends_with("rope_type 'x??[31m' is not known"));
    copy.set("model_type", odd);
    CHECK(copy.complaint().starts_with("[model] model_type 'x??[31m' is not known"));
  }
}
