#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <ranges>
#include <utility>

#include "backend/webgpu/webgpu_backend.h"
#include "base/paths.h"
#include "conform/model_suite.h"
#include "io/safetensors.h"
#include "llm/embed.h"
#include "llm/model.h"
#include "llm/recurrent.h"
#include "llm/room.h"
#include "llm/verify.h"
#include "support/gguf_file.h"
#include "support/gpus.h"
#include "support/model_copy.h"
#include "support/scoped.h"
#include "weft/llm.h"

using namespace weft;
using namespace weft::llm;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using test::Copy;
using test::kModels;

json read_json(const fs::path& file) {
  return json::parse(read_text(file).value_or(""));
}

/// Logits of all tokens of several sequences that go on together, `step` tokens of each at a time.
std::vector<std::vector<float>> together(Model& model, const std::vector<std::vector<TokenId>>& texts,
                                         const std::vector<size_t>& steps) {
  std::vector<Sequence> sequences(texts.size());
  std::vector<std::vector<float>> logits(texts.size());
  const auto width = static_cast<size_t>(model.config().vocabulary);
  const auto more = [&](size_t i) { return sequences[i].tokens.size() < texts[i].size(); };
  while (std::ranges::any_of(std::views::iota(size_t{0}, texts.size()), more)) {
    Batch batch;
    std::vector<const Sequence*> now;
    std::vector<size_t> counts(texts.size(), 0);
    for (size_t i = 0; i < texts.size(); ++i) {
      sequences[i].index = static_cast<int32_t>(i);
      const size_t done = sequences[i].tokens.size();
      counts[i] = std::min(steps[i], texts[i].size() - done);
      if (counts[i] == 0) continue;
      append(batch, sequences[i], std::span(texts[i]).subspan(done, counts[i]), model.pages(), true);
      now.push_back(&sequences[i]);
    }
    add_keys(batch, now);
    const std::vector<float> rows = model.forward(batch).to_vector();
    auto from = rows.begin();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto end = from + static_cast<int64_t>(counts[i] * width);
      logits[i].insert(logits[i].end(), from, end);
      from = end;
    }
  }
  return logits;
}

double difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

}  // namespace

TEST_SUITE("base: models") {
  TEST_CASE("every architecture gives transformers' logits and tokens, from folders and GGUF files") {
    for (const conform::ModelCase& c : conform::load_model_suite(kModels / "suite.json")) {
      CAPTURE(c.name);
      CHECK(conform::model_difference(c, Device()) == "");
    }
  }

  TEST_CASE("older folders have other words for the same") {
    for (const std::string name :
         {"llama", "gemma3", "phi3", "gptneox", "deepseek3", "exaone4", "lfm2", "qwen3next"}) {
      CAPTURE(name);
      const Copy copy(name);
      json config = read_json(copy.path / "config.json");
      json scaling = config["rope_parameters"];
      config.erase("rope_parameters");
      if (scaling.contains("full_attention")) {
        config["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"];
        scaling = json(scaling["full_attention"]);
      }
      config[name == "gptneox" ? "rotary_emb_base" : "rope_theta"] = scaling["rope_theta"];
      if (scaling.contains("partial_rotary_factor"))
        config[name == "gptneox" ? "rotary_pct" : "partial_rotary_factor"] = scaling["partial_rotary_factor"];
      scaling["type"] = scaling["rope_type"];
      for (const char* key : {"rope_type", "rope_theta", "partial_rotary_factor"}) scaling.erase(key);
      config["rope_scaling"] = scaling["type"] == "default" ? json() : scaling;
      config.erase("layer_types");
      if (name == "lfm2") config["full_attn_idxs"] = {1};
      if (name == "exaone4") config["sliding_window_pattern"] = "LLLG";
      write_text(copy.path / "config.json", config.dump());
      CHECK(conform::model_difference(
                {.model = copy.path, .expect = copy.path / "expect.safetensors", .max = 0.005}, Device()) ==
            "");
    }
  }

  TEST_CASE("what a config leaves out is as in transformers") {
    const std::pair<std::string, std::vector<std::string>> cases[] = {
        {"gpt2", {"layer_norm_epsilon", "activation_function"}},
        {"gptneox", {"layer_norm_eps"}},
        {"stablelm", {"layer_norm_eps"}},
        {"starcoder2", {"norm_epsilon"}},
        {"phi2", {"layer_norm_eps", "rope_parameters"}},
        {"glm4", {"rope_parameters"}},
        {"nemotron", {"norm_eps", "rope_parameters"}},
        {"gptoss", {"rope_parameters", "layer_types"}},
        {"lfm2", {"rope_parameters", "norm_eps"}},
        {"qwen2moe", {"norm_topk_prob"}},
        {"qwen3moe", {"norm_topk_prob"}},
        {"qwen3next", {"norm_topk_prob"}},
        {"qwen35", {"rope_parameters", "linear_conv_kernel_dim"}},
        {"deepseek3", {"norm_topk_prob"}},
    };
    for (const auto& [name, keys] : cases) {
      CAPTURE(name);
      const Copy copy(name);
      json config = read_json(copy.path / "config.json");
      for (const std::string& key : keys) CHECK(config.erase(key) == 1);
      write_text(copy.path / "config.json", config.dump());
      CHECK(conform::model_difference(
                {.model = copy.path, .expect = copy.path / "expect.safetensors", .max = 0.005}, Device()) ==
            "");
    }
  }

  TEST_CASE("keys that transformers does not look at change nothing") {
    for (const auto& [key, value] :
         {std::pair<std::string, json>{"sliding_window", 3}, {"partial_rotary_factor", 0.5}}) {
      CAPTURE(key);
      const Copy copy("llama");
      copy.set(key, value);
      CHECK(conform::model_difference(
                {.model = copy.path, .expect = copy.path / "expect.safetensors", .max = 0.005}, Device()) ==
            "");
    }
  }

  TEST_CASE("a config's activation counts, not the architecture's usual one") {
    const auto logits = [](const std::string& name, const std::string& key, const std::string& value) {
      const Copy copy(name);
      if (!value.empty()) copy.set(key, value);
      Model model(copy.path, {.context = 16, .cache_type = quant::Type::f32});
      Sequence sequence = model.new_sequence();
      return model.run(sequence, std::vector<TokenId>{5, 9, 3});
    };
    const auto same = [&](const std::string& name, const std::string& key, const std::string& one,
                          const std::string& other) {
      return difference(logits(name, key, one), logits(name, key, other)) < 1e-5;
    };
    CHECK(same("llama", "hidden_act", "silu", ""));
    CHECK_FALSE(same("llama", "hidden_act", "relu", ""));
    CHECK_FALSE(same("llama", "hidden_act", "gelu", "relu"));
    CHECK(same("gpt2", "activation_function", "gelu_new", ""));
    CHECK(same("gpt2", "activation_function", "gelu_pytorch_tanh", ""));
    CHECK_FALSE(same("gpt2", "activation_function", "relu", ""));
    CHECK_FALSE(same("falcon", "activation", "relu", ""));
    CHECK_FALSE(same("nemotron", "hidden_act", "silu", ""));
    CHECK_FALSE(same("gemma3", "hidden_activation", "silu", ""));
  }

  TEST_CASE("longrope turns a text by its own length, whichever way it was reached") {
    const fs::path path = kModels / "phi3-border";  // its border is behind 20 tokens
    std::vector<TokenId> text;
    for (int i = 0; i < 600; ++i) text.push_back(3 + i * i % 61);
    Model model(path, {.context = 640});
    const auto run = [&](std::initializer_list<size_t> lengths) {
      Sequence sequence = model.new_sequence();
      std::vector<float> logits;
      for (const size_t length : lengths) {
        truncate(sequence, std::min(sequence.tokens.size(), length - 1), model.pages());
        logits = model.run(sequence,
                           std::span(text).subspan(sequence.tokens.size(), length - sequence.tokens.size()));
      }
      truncate(sequence, 0, model.pages());
      return logits;
    };
    CHECK(difference(run({10, 20}), run({20})) < 1e-4);
    CHECK(difference(run({20, 21}), run({21})) < 1e-4);
    CHECK(difference(run({21, 20}), run({20})) < 1e-4);
    CHECK(difference(run({5, 6, 300, 600}), run({600})) < 1e-4);
    // A larger context changes nothing.
    Model small(path, {.context = 20});
    Sequence sequence = small.new_sequence();
    CHECK(difference(small.run(sequence, std::span(text).first(20)), run({20})) < 1e-4);

    Sequence saved = model.new_sequence();
    model.run(saved, std::span(text).first(21));
    Sequence loaded = model.restore(saved.tokens, model.cached(saved));
    truncate(saved, 0, model.pages());
    CHECK(difference(model.run(loaded, std::span(text).subspan(21, 1)), run({22})) < 1e-4);
  }

  TEST_CASE("text models inside of others, and models without their head") {
    const auto renamed = [](const std::string& name, const std::string& from, const std::string& to) {
      const Copy copy(name);
      copy.change([&](auto& tensors) {
        std::map<std::string, HostTensor> others;
        for (auto& [key, tensor] : tensors)
          others[key.starts_with(from) ? to + key.substr(from.size()) : key] = std::move(tensor);
        tensors = std::move(others);
      });
      if (to == "model.language_model.") {
        const json inner = read_json(copy.path / "config.json");
        write_text(copy.path / "config.json",
                   json({{"model_type", "qwen3_5"}, {"text_config", inner}}).dump());
      }
      return conform::model_difference(
          {.model = copy.path, .expect = copy.path / "expect.safetensors", .max = 0.005}, Device());
    };
    CHECK(renamed("qwen35", "model.", "model.language_model.") == "");
    CHECK(renamed("gemma", "model.", "") == "");
    CHECK(renamed("gpt2", "transformer.", "") == "");
  }

  TEST_CASE("every architecture has a model here") {
    std::vector<std::string> seen = {"bert", "qwen3"};  // bert is below; qwen3 is qwen3moe without experts
    for (const conform::ModelCase& c : conform::load_model_suite(kModels / "suite.json"))
      seen.push_back(ModelFile::open(c.model).architecture);
    for (const std::string_view name : architecture_names()) {
      CAPTURE(name);
      CHECK(std::ranges::find(seen, name) != seen.end());
    }
  }

  TEST_CASE("sequences in one batch do not see each other") {
    for (const std::string name : {"llama", "gemma3", "bloom", "deepseek2", "lfm2", "qwen3next", "qwen35"}) {
      CAPTURE(name);
      Model model(kModels / name, {.context = 32, .sequences = 4, .cache_type = quant::Type::f32});
      const std::vector<int32_t> ids = load_expected(kModels / name / "expect.safetensors").ids;
      std::vector<std::vector<TokenId>> texts;
      for (const auto& [first, count] : {std::pair{0, 13}, {3, 5}, {16, 13}, {9, 1}})
        texts.emplace_back(ids.begin() + first, ids.begin() + first + count);
      std::vector<std::vector<float>> alone;
      for (const std::vector<TokenId>& text : texts) {
        Sequence sequence = model.new_sequence();
        alone.push_back(model.run(sequence, text, true));
        truncate(sequence, 0, model.pages());
      }
      for (const std::vector<size_t>& steps :
           {std::vector<size_t>{13, 5, 13, 1}, {1, 1, 1, 1}, {4, 4, 4, 4}, {2, 3, 6, 1}}) {
        Model fresh(kModels / name, {.context = 32, .sequences = 4, .cache_type = quant::Type::f32});
        const std::vector<std::vector<float>> got = together(fresh, texts, steps);
        for (size_t i = 0; i < texts.size(); ++i) CHECK(difference(got[i], alone[i]) < 2e-4);
      }
    }
  }

  TEST_CASE("the gated delta rule is its recurrence, over many chunks") {
    constexpr int64_t kLength = 150, kKey = 4, kValue = 3;
    std::vector<float> q, k, v, fade, step, want;
    std::vector<double> state(kKey * kValue, 0.25);
    const auto wave = [](int64_t i, double by) { return std::sin(static_cast<double>(i) * by); };
    for (int64_t t = 0; t < kLength; ++t) {
      std::vector<double> key(kKey), query(kKey), value(kValue);
      double length = 0;
      for (int64_t i = 0; i < kKey; ++i) key[i] = wave(t / 3 + i, 1.7), length += key[i] * key[i];
      for (double& x : key) x /= std::sqrt(length);
      for (int64_t i = 0; i < kKey; ++i) query[i] = wave(t + 5 * i, 0.9);
      for (int64_t j = 0; j < kValue; ++j) value[j] = wave(2 * t + j, 0.31);
      const double f = t % 7 == 0 ? -4.0 : -0.02, s = 0.5 + 0.49 * wave(t, 2.3);
      for (double& x : state) x *= std::exp(f);
      for (int64_t j = 0; j < kValue; ++j) {
        double held = 0, read = 0;
        for (int64_t i = 0; i < kKey; ++i) held += state[i * kValue + j] * key[i];
        for (int64_t i = 0; i < kKey; ++i) state[i * kValue + j] += key[i] * s * (value[j] - held);
        for (int64_t i = 0; i < kKey; ++i) read += state[i * kValue + j] * query[i];
        want.push_back(static_cast<float>(read));
      }
      for (double x : query) q.push_back(static_cast<float>(x));
      for (double x : key) k.push_back(static_cast<float>(x));
      for (double x : value) v.push_back(static_cast<float>(x));
      fade.push_back(static_cast<float>(f)), step.push_back(static_cast<float>(s));
    }
    const auto array = [](const std::vector<float>& x, const Shape& shape) {
      return Array::from_vector(x, shape);
    };
    Array last = array(std::vector<float>(kKey * kValue, 0.25f), {1, 1, kKey, kValue});
    const Array got = gated_delta_rule(array(q, {1, 1, kLength, kKey}), array(k, {1, 1, kLength, kKey}),
                                       array(v, {1, 1, kLength, kValue}), array(fade, {1, 1, kLength}),
                                       array(step, {1, 1, kLength}), last);
    CHECK(difference(got.to_vector(), want) < 1e-5);
    CHECK(difference(last.to_vector(), std::vector<float>(state.begin(), state.end())) < 1e-5);
  }

  TEST_CASE("bert embeds as transformers does") {
    Embedder embedder(kModels / "bert", Device());
    for (const json& c : read_json(kModels / "bert" / "expect.json")) {
      CAPTURE(c["text"]);
      CHECK(difference(embedder.embed(c["text"].get<std::string>()),
                       c["embedding"].get<std::vector<float>>()) < 1e-6);
    }
  }

  TEST_CASE("bert writes no text") {
    const test::Caught error = test::error_of([] { LanguageModel::open(kModels / "bert", {}); });
    CHECK(error.kind == "unsupported");
    CHECK(error.message.ends_with("this model writes no text; `weft embed` takes it"));
  }

  TEST_CASE("pooling is the folder's") {
    const Copy copy("bert");
    const auto set = [&](const std::string& key) {
      write_text(copy.path / "1_Pooling" / "config.json", json({{key, true}}).dump());
    };
    set("pooling_mode_cls_token");
    CHECK(Embedder(copy.path, Device()).pooling() == Pooling::first);
    set("pooling_mode_lasttoken");
    Embedder last(copy.path, Device());
    CHECK(last.pooling() == Pooling::last);
    double length = 0;
    for (float x : last.embed("a cat")) length += static_cast<double>(x) * static_cast<double>(x);
    CHECK(length == doctest::Approx(1));
    set("pooling_mode_max_tokens");
    CHECK(test::error_of([&] { Embedder(copy.path, Device()); }).kind == "unsupported");
    write_text(copy.path / "modules.json", json::array({json({{"type", "models.Dense"}})}).dump());
    CHECK(test::error_of([&] { Embedder(copy.path, Device()); }).kind == "unsupported");
  }

  TEST_CASE("damaged folders are told in one line") {
    const std::string up = "model.layers.1.mlp.up_proj.weight";
    {
      const Copy copy("llama");
      copy.change([&](auto& tensors) { tensors.erase(up); });
      CHECK(copy.complaint() == "[model] FOLDER: tensor 'blk.1.ffn_up.weight' is missing");
    }
    {
      const Copy copy("llama");
      copy.change([&](auto& tensors) { tensors[up] = tensors["model.norm.weight"]; });
      CHECK(copy.complaint() == "[model] FOLDER: tensor 'blk.1.ffn_up.weight' is (32), expected (48,32)");
    }
    {
      const Copy copy("qwen3moe");
      copy.change([](auto& tensors) { tensors.erase("model.layers.1.mlp.experts.3.up_proj.weight"); });
      CHECK(copy.complaint() == "[model] FOLDER: the parts of 'blk.1.ffn_up_exps.weight' do not go together");
    }
    {
      const Copy copy("llama");
      fs::resize_file(copy.path / "model.safetensors", 9000);
      CHECK(copy.complaint().starts_with("[safetensors]"));
    }
    const auto with = [](const std::string& key, const json& value) {
      const Copy copy("llama");
      copy.set(key, value);
      return copy.complaint();
    };
    CHECK(with("model_type", "transformer9")
              .starts_with("[model] model_type 'transformer9' is not known; these"));
    CHECK(with("num_hidden_layers", 1e9) ==
          "[model] FOLDER/config.json: 1000000000 layers, 4 heads, width 32");
    CHECK(with("num_hidden_layers", "two") ==
          "[model] FOLDER/config.json: 'num_hidden_layers' is not a number");
    CHECK(with("hidden_act", "quick_gelu") == "[model] FOLDER: activation 'quick_gelu' is not known");
    CHECK(with("hidden_size", nullptr) == "[model] FOLDER/config.json: 'hidden_size' is missing");
    CHECK(with("rope_parameters", {{"rope_type", "spiral"}}) ==
          "[model] FOLDER/config.json: rope_type 'spiral' is not known");
    {
      const Copy copy("falcon");
      copy.set("alibi", true);
      CHECK(copy.complaint() ==
            "[model] FOLDER/config.json: falcon with 'alibi' or without 'parallel_attn' is not known");
    }
    const auto refused = [](const std::string& name, const std::string& key, const json& value) {
      const Copy copy(name);
      copy.set(key, value);
      return copy.complaint();
    };
    CHECK(refused("gemma3", "use_bidirectional_attention", true) ==
          "[model] FOLDER/config.json: gemma3_text with 'use_bidirectional_attention' is not known");
    CHECK(refused("bloom", "apply_residual_connection_post_layernorm", true).ends_with("is not known"));
    CHECK(refused("gpt2", "scale_attn_by_inverse_layer_idx", true).ends_with("is not known"));
    CHECK(refused("bert", "position_embedding_type", "relative_key") ==
          "[model] FOLDER/config.json: position_embedding_type 'relative_key' is not known");
    CHECK(refused("gemma3", "rope_parameters",
                  {{"full_attention", {{"rope_type", "default"}}},
                   {"sliding_attention", {{"rope_type", "linear"}, {"factor", 4}}}}) ==
          "[model] FOLDER/config.json: rope_type 'linear' of layers with a window is not known");
    CHECK(refused("llama", "rope_parameters", {{"rope_type", "yarn"}}) ==
          "[model] FOLDER/config.json: 'factor' is missing");
    for (const std::string text : {"{\"model_type\":", "[]", ""}) {
      const Copy copy("llama");
      write_text(copy.path / "config.json", text);
      CHECK(copy.complaint() == "[model] FOLDER/config.json: this is no JSON object");
    }
  }

  TEST_CASE("weights that no pass reads are not left out in silence") {
    const auto with = [](const std::string& model, const std::string& name, const std::string& like) {
      const Copy copy(model);
      copy.change([&](auto& tensors) { tensors[name] = tensors.at(like); });
      return copy.complaint();
    };
    const std::string norm = "model.layers.1.input_layernorm.weight";
    CHECK(with("llama", "model.layers.1.self_attn.sinks.weight", norm) ==
          "[model] FOLDER: 'model.layers.1.self_attn.sinks.weight' has no place in llama");
    CHECK(with("llama", "model.layers.1.input_layernorm.bias", norm) ==
          "[model] FOLDER: 'blk.1.attn_norm.bias' has no place in llama");
    for (const char* unrelated :
         {"model.layers.2.input_layernorm.bias", "vision_tower.layers.0.norm.weight"}) {
      const Copy copy("llama");  // a layer that is not run, and another model
      copy.change([&](auto& tensors) { tensors[unrelated] = tensors.at(norm); });
      CHECK_NOTHROW(Model(copy.path, {.context = 16}));
    }
  }

  TEST_CASE("a matrix's scale counts, an expert's too") {  // files of NVFP4 have them
    const auto logits = [](const std::string& name, const std::string& matrix, bool is_scale) {
      ModelFile file = ModelFile::open(kModels / name);
      const StoredTensor weight = file.tensor(matrix + ".weight");
      if (is_scale) {
        const Shape shape = {weight.shape.size() == 3 ? weight.shape[0] : 1};
        file.tensors[matrix + ".scale"] = StoredTensor::computed(
            shape, [shape] { return std::vector<float>(static_cast<size_t>(shape[0]), 0.5f); });
      } else {
        file.tensors[matrix + ".weight"] = StoredTensor::computed(weight.shape, [weight] {
          std::vector<float> values = weight.values();
          for (float& x : values) x *= 0.5f;
          return values;
        });
      }
      Model model(std::move(file), {.context = 16, .cache_type = quant::Type::f32});
      Sequence sequence = model.new_sequence();
      return model.run(sequence, std::vector<TokenId>{5, 9, 3});
    };
    for (const auto& [name, matrix] : {std::pair{"llama", "blk.1.attn_k"},
                                       {"llama", "blk.0.ffn_up"},
                                       {"qwen3moe", "blk.1.ffn_down_exps"}}) {
      CAPTURE(matrix);
      CHECK(difference(logits(name, matrix, true), logits(name, matrix, false)) < 1e-4);
    }
  }

  TEST_CASE("what a cache takes is known before it is made") {
    for (const fs::directory_entry& folder : fs::directory_iterator(kModels)) {
      if (!fs::exists(folder.path() / "model.safetensors")) continue;
      CAPTURE(folder.path());
      Model model(folder.path(), {.context = 16});
      const Config& config = model.config();
      int64_t known = 0, made = 0;
      for (size_t i = 0; i < config.layers.size(); ++i) {
        const CacheColumns columns = cache_columns(model.file(), config, i);
        known += columns.keys + columns.values;
      }
      for (const Array* cache : model.caches())
        if (cache->shape(0) == 2 * kPageRows) made += cache->shape(1);
      CHECK(known == made);
    }
  }

  TEST_CASE("a model has one fingerprint, another model another one") {
    const auto fingerprint = [](const char* name) { return ModelFile::open(kModels / name).fingerprint(); };
    CHECK(fingerprint("llama") == fingerprint("llama"));
    CHECK(fingerprint("llama") != fingerprint("gemma"));
    const Copy copy("llama");
    copy.change(
        [](auto& tensors) { tensors["model.layers.1.self_attn.q_proj.weight"].bytes[0] ^= std::byte{1}; });
    CHECK(ModelFile::open(copy.path).fingerprint() != fingerprint("llama"));
  }

  TEST_CASE("adapters are added in full or refused") {
    const test::ScopedFolder folder;
    const auto complaint = [&](const std::string& model, const std::string& module, const Shape& a,
                               const Shape& b, const json& more) {
      const auto zeros = [](const Shape& shape) {
        const auto bytes = static_cast<size_t>(shape[0] * shape[1]) * sizeof(float);
        return HostTensor{DType::f32, shape, std::vector<std::byte>(bytes)};
      };
      json config = {{"lora_alpha", 8}, {"r", 2}};
      config.update(more);
      write_text(folder.path / "adapter_config.json", config.dump());
      write_safetensors(folder.path / "adapter_model.safetensors",
                        {{"base_model.model." + module + ".lora_A.weight", zeros(a)},
                         {"base_model.model." + module + ".lora_B.weight", zeros(b)}});
      try {
        Model(kModels / model, {.context = 16, .adapters = {{folder.path, 1.0}}});
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    const std::string up = "model.layers.1.mlp.up_proj", kv = "model.layers.1.self_attn.kv_b_proj";
    CHECK(complaint("llama", up, {2, 32}, {48, 2}, json::object()) == "");
    CHECK(complaint("llama", up, {2, 32}, {48, 2}, {{"alpha_pattern", {{"up_proj", 4}}}})
              .ends_with("'alpha_pattern' is not known"));
    CHECK(complaint("deepseek2", kv, {2, 16}, {56, 2}, json::object())
              .ends_with("'blk.1.attn_kv_b.weight.lora_a' has no place in deepseek2"));
  }

  TEST_CASE("an index names files of its folder") {
    for (const std::string file :
         {"../llama/model.safetensors", "/etc/passwd", "..", "missing.safetensors"}) {
      const Copy copy("llama");
      fs::rename(copy.path / "model.safetensors", copy.path / "other.safetensors");
      write_text(copy.path / "model.safetensors.index.json",
                 json({{"weight_map", {{"model.norm.weight", file}}}}).dump());
      CAPTURE(file);
      const std::string message = copy.complaint();
      CHECK(message.find(file.starts_with("m") ? "missing.safetensors"
                                               : "'model.norm.weight' is in no file") != message.npos);
    }
  }

  TEST_CASE("absurd sizes are told in one line") {
    const auto with = [](const std::string& name, const std::string& key, const json& value) {
      const Copy copy(name);
      copy.set(key, value);
      return copy.complaint();
    };
    CHECK(with("qwen35", "linear_num_key_heads", 3) ==
          "[model] FOLDER: linear attention of 3 and 4 heads, 8 and 32 elements, kernel 4");
    CHECK(with("qwen35", "linear_conv_kernel_dim", 1e12).find("kernel 1000000000000") != std::string::npos);
    CHECK(with("deepseek2", "v_head_dim", -4).find("heads of 12 and -4 elements") != std::string::npos);
    CHECK(with("deepseek3", "n_group", 3) == "[model] FOLDER: 8 experts in 3 groups, 2 of them used");
    CHECK(with("deepseek3", "num_experts_per_tok", 0) == "[model] FOLDER: 0 of 8 experts");
    CHECK(with("qwen3moe", "moe_intermediate_size", 0) == "[model] FOLDER: experts of width 0");
    CHECK(with("llama", "head_dim", 1e18) == "[model] FOLDER/config.json: heads of 1e+18 elements");
    CHECK(with("deepseek3", "num_experts_per_tok", 9) == "[model] FOLDER: 9 of 8 experts");
    CHECK(with("olmo2", "num_key_value_heads", 3) ==
          "[model] FOLDER: 4 query heads do not share 3 key heads");
    CHECK(with("lfm2", "num_key_value_heads", 3) == "[model] FOLDER: 4 query heads do not share 3 key heads");
  }

  TEST_CASE("damaged GGUF files are told in one line") {
    const test::ScopedFolder folder;
    const auto complaint = [&](const test::GgufFile& file) {
      write_text(folder.path / "m.gguf", file.file());
      return test::error_of([&] { Model(folder.path / "m.gguf", {.context = 16}); }).message;
    };
    const std::string name = (folder.path / "m.gguf").string();
    CHECK(complaint(test::GgufFile()) ==
          fmt::format("[model] {}: the file does not name its architecture", name));
    CHECK(complaint(test::GgufFile().text("general.architecture", "eliza"))
              .starts_with("[model] architecture 'eliza' is not known; these are: bert, bloom,"));
    CHECK(complaint(test::GgufFile().text("general.architecture", "llama")) ==
          fmt::format("[model] {}: 'llama.embedding_length' is missing", name));
  }
}

TEST_SUITE("gpu models") {
  TEST_CASE("a GPU gives the same") {
    bool done = false;  // one library is enough: ops are compared on all of them
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (std::exchange(done, true)) return;
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      for (const conform::ModelCase& c : conform::load_model_suite(kModels / "suite.json")) {
        const std::string_view chosen[] = {"deepseek3/gguf", "lfm2/hf"};
        if (std::ranges::find(chosen, c.name) == std::end(chosen)) continue;
        CAPTURE(c.name);
        CHECK(conform::model_difference(c, device) == "");
      }
    });
  }
}
