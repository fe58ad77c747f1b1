#include "llm/speculative.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/webgpu/webgpu_backend.h"
#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "support/tiny_model.h"

using namespace weft;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kModel = WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf";
const std::vector<TokenId> kPrompt = {7, 31, 200, 45, 7, 31, 200, 99, 12, 7, 31};

GenerateOptions greedy(int64_t count) {
  return {.sampler = {.temperature = 0}, .max_tokens = count, .ignore_end = true};
}

LanguageModel open(const DraftOptions& draft, const Device& device = {}, int64_t context = 256) {
  return LanguageModel::open(kModel, {.device = device, .context = context, .draft = draft});
}

/// Ways to guess: from the text, by the model itself (always right), by another one (mostly wrong), both.
std::vector<DraftOptions> ways(const fs::path& other) {
  return {{.lookup = true},
          {.model = kModel, .max = 5, .p_min = 0},
          {.model = other, .max = 4, .p_min = 0},
          {.model = other, .lookup = true, .max = 7, .min = 2, .p_min = 0}};
}

}  // namespace

TEST_SUITE("base: speculative decoding") {
  TEST_CASE("what followed the same tokens before is found") {
    using Ids = std::vector<TokenId>;
    const auto found = [](const Ids& text, size_t most = 3) { return llm::looked_up(text, most); };
    CHECK(found({}) == Ids{});
    CHECK(found({1}) == Ids{});
    CHECK(found({1, 2, 3, 4}) == Ids{});
    CHECK(found({1, 2, 3, 4, 5, 1, 2}) == Ids{3, 4, 5});
    CHECK(found({1, 2, 3, 4, 5, 1, 2}, 1) == Ids{3});
    CHECK(found({1, 2, 9, 1, 2, 8, 1, 2}) == Ids{8, 1, 2});           // the last time
    CHECK(found({5, 1, 2, 9, 6, 1, 2, 8, 5, 1, 2}) == Ids{9, 6, 1});  // the longest match
    CHECK(found({4, 4, 4, 4}) == Ids{4});                             // itself
    CHECK(found({1, 2, 3, 1}) == Ids{});                              // one token is no match
  }

  TEST_CASE("guesses are taken as long as they are right") {
    llm::Guesses guesses;
    CHECK(guesses.waiting() == 0);
    CHECK_FALSE(guesses.take(3));
    const std::vector<TokenId> tokens = {3, 1};
    guesses.put(tokens, {0, 1, 10, 11, 20, 21});
    CHECK(guesses.first() == std::vector<float>{0, 1});
    CHECK(guesses.take(3) == std::vector<float>{10, 11});
    CHECK_FALSE(guesses.take(3));
    CHECK(guesses.worth() == 4);
    CHECK(guesses.drop() == 1);
    CHECK(guesses.drop() == 0);
    CHECK(guesses.worth() == 4);  // twice as many as were right, and two
    CHECK_FALSE(guesses.take(1));
    CHECK(guesses.made() == 2);
    CHECK(guesses.right() == 1);
    guesses.put(tokens, {0, 1, 10, 11, 20, 21});
    CHECK(guesses.drop() == 2);
    CHECK(guesses.worth() == 2);
  }

  TEST_CASE("the text is the same as without guesses") {
    const test::ScopedFolder folder;
    const fs::path other = folder.path / "other.gguf";
    test::write_tiny_model(other, {.layers = 1});

    std::vector<GenerateOptions> tasks = {greedy(60), greedy(1), greedy(2)};
    tasks.push_back(greedy(40));
    tasks.back().sampler.repeat_penalty = 1.3F;
    tasks.push_back(greedy(40));
    tasks.back().sampler.dry_multiplier = 0.8F;
    tasks.push_back({.sampler = {.temperature = 1.2F, .seed = 5}, .max_tokens = 40, .ignore_end = true});
    tasks.push_back({.sampler = {.mirostat = 2, .seed = 6}, .max_tokens = 40, .ignore_end = true});
    tasks.push_back({.sampler = {.temperature = 0.5F, .seed = 7}, .max_tokens = 40});
    tasks.back().grammar = "root ::= ([ab]{3} \"-\")*";
    LanguageModel plain = open({});
    const std::string whole = plain.generate(kPrompt, greedy(60)).text;
    tasks.push_back(greedy(60));
    tasks.back().stops = {whole.substr(whole.size() / 2, 4)};

    for (const DraftOptions& way : ways(other)) {
      LanguageModel model = open(way);
      for (const GenerateOptions& task : tasks) {
        const GenerateResult want = plain.generate(kPrompt, task), got = model.generate(kPrompt, task);
        CHECK(got.tokens == want.tokens);
        CHECK(got.text == want.text);
        CHECK(got.reason == want.reason);
        CHECK(got.right_guesses <= got.guessed_tokens);
        CHECK(want.guessed_tokens == 0);
      }
      const GenerateResult longest = model.generate(kPrompt, tasks[0]);
      CHECK(longest.guessed_tokens > 0);
      if (way.model == kModel) CHECK(longest.right_guesses == longest.guessed_tokens);
    }
  }

  TEST_CASE("a context that is full, a listener who stops, logprobs") {
    GenerateOptions shifted = greedy(80);
    shifted.logprobs = 2;
    GenerateOptions ends = greedy(80);
    ends.shift = false;
    LanguageModel plain = open({}, {}, 40),
                  model = open({.model = kModel, .lookup = true, .p_min = 0}, {}, 40);
    for (const GenerateOptions& task : {shifted, ends}) {
      std::vector<float> want, got;
      const auto listen = [](std::vector<float>& heard) {
        return [&](const GeneratedToken& token) {
          if (token.logprob) heard.push_back(*token.logprob);
          return true;
        };
      };
      CHECK(plain.generate(kPrompt, task, listen(want)).tokens ==
            model.generate(kPrompt, task, listen(got)).tokens);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 1e-3F);
    }
    // Stopped among guesses: the next call begins with what was said, no more.
    int left = 3;
    const GenerateResult cut = model.generate(kPrompt, greedy(20), [&](const auto&) { return --left > 0; });
    CHECK(cut.tokens.size() == 3);
    std::vector<TokenId> longer = kPrompt;
    longer.insert(longer.end(), cut.tokens.begin(), cut.tokens.end());
    longer.push_back(5);
    const GenerateResult after = model.generate(longer, greedy(5));
    CHECK(after.cached_tokens >= std::ssize(kPrompt) + 2);
    CHECK(after.tokens == plain.generate(longer, greedy(5)).tokens);
  }

  TEST_CASE("models that cannot guess, or be guessed for") {
    const test::ScopedFolder folder;
    const fs::path architectures = WEFT_SOURCE_DIR "/tests/data/architectures";
    const auto with_words = [&](const std::string& name) {
      const fs::path path = folder.path / name;
      fs::copy(architectures / name, path, fs::copy_options::recursive);
      json tokenizer = json::parse(*read_text(architectures / "bert/tokenizer.json"));
      json& words = tokenizer["model"]["vocab"];
      for (size_t id = words.size(); id < 64; ++id) words[fmt::format("w{}", id)] = id;
      write_text(path / "tokenizer.json", tokenizer.dump());
      return path;
    };
    const fs::path recurrent = with_words("qwen35"), other = with_words("llama");
    LanguageModel model = LanguageModel::open(recurrent, {.draft = {.model = other, .lookup = true}});
    const std::vector<TokenId> prompt = {3, 4, 5, 3, 4, 5, 3, 4};
    const GenerateResult result = model.generate(prompt, greedy(8));
    CHECK(result.tokens.size() == 8);
    CHECK(result.guessed_tokens == 0);

    const auto error = [&](const fs::path& path, const fs::path& draft) {
      return test::error_of([&] { LanguageModel::open(path, {.draft = {.model = draft}}); });
    };
    CHECK(error(other, recurrent)
              .message.ends_with("qwen35: a model that cannot take tokens back cannot guess"));
    CHECK(error(kModel, other).message.find("llama: token 0 is '[PAD]', but '") != std::string::npos);
    CHECK(error(kModel, "/nowhere.gguf").kind == "io");
  }
}

TEST_SUITE("gpu speculative decoding") {
  TEST_CASE("every device gives the same text with guesses") {
    const test::ScopedFolder folder;
    const fs::path other = folder.path / "other.gguf";
    test::write_tiny_model(other, {.layers = 1});
    LanguageModel cpu = open({});
    const std::vector<TokenId> want = cpu.generate(kPrompt, greedy(24)).tokens;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      LanguageModel model = open({.model = other, .lookup = true, .max = 4, .p_min = 0}, device);
      CHECK(model.generate(kPrompt, greedy(24)).tokens == want);
    });
  }
}
