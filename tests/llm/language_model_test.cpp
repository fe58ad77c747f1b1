#include "weft/llm.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <thread>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/stop_finder.h"
#include "llm/verify.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "weft/error.h"

using namespace weft;

namespace {

const std::filesystem::path kFolder = WEFT_SOURCE_DIR "/tests/data/models/qwen2";
const std::filesystem::path kModel = kFolder / "model-f32.gguf";

struct Text {
  std::vector<TokenId> prompt, follows;
};

/// The first text of the expected ones, and the tokens that follow it.
Text expected() {
  const llm::Expected e = llm::load_expected(kFolder / "expect.safetensors");
  return {{e.ids.begin(), e.ids.begin() + e.length}, {e.greedy.begin(), e.greedy.begin() + e.follow}};
}

GenerateOptions greedy(int64_t count) {
  return {.sampler = {.temperature = 0}, .max_tokens = count, .ignore_end = true};
}

LanguageModel open(const Device& device = {}, int64_t context = 0) {
  return LanguageModel::open(kModel, {.device = device, .context = context});
}

}  // namespace

TEST_SUITE("base: language models") {
  TEST_CASE("the likeliest tokens follow") {
    const Text text = expected();
    LanguageModel model = open();
    CHECK(model.architecture() == "qwen2");
    const GenerateResult result = model.generate(text.prompt, greedy(std::ssize(text.follows)));
    CHECK(result.tokens == text.follows);
    CHECK(result.reason == FinishReason::length);
    CHECK(result.cached_tokens == 0);

    // Again: the prompt is there, but for its last token.
    const GenerateResult again = model.generate(text.prompt, greedy(4));
    CHECK(again.cached_tokens == std::ssize(text.prompt) - 1);
    CHECK(again.tokens == std::vector<TokenId>(text.follows.begin(), text.follows.begin() + 4));

    // Another beginning.
    std::vector<TokenId> other = text.prompt;
    other[3] = other[3] == 5 ? 6 : 5;
    CHECK(model.generate(other, greedy(1)).cached_tokens == 3);
    CHECK(model.generate(text.prompt, greedy(16)).tokens == text.follows);
  }

  TEST_CASE("a prompt in parts gives the logits of the whole") {
    const Text text = expected();
    LanguageModel model = open();
    const std::vector<float> all = model.logits(text.prompt);
    const auto width = static_cast<size_t>(model.vocabulary());
    REQUIRE(all.size() == text.prompt.size() * width);
    llm::Model parts(kModel, {});
    llm::Sequence sequence = parts.new_sequence();
    for (size_t i = 0; i < text.prompt.size(); ++i) {
      const std::vector<float> one = parts.run(sequence, std::span(text.prompt).subspan(i, 1));
      float most = 0;
      for (size_t j = 0; j < width; ++j) most = std::max(most, std::abs(one[j] - all[i * width + j]));
      CHECK(most < 1e-4f);
    }
  }

  TEST_CASE("the same seed gives the same text, another one another") {
    const Text text = expected();
    LanguageModel model = open();
    const auto sampled = [&](uint64_t seed) {
      return model.generate(text.prompt, {.sampler = {.temperature = 1.5F, .seed = seed}, .max_tokens = 12})
          .tokens;
    };
    CHECK(sampled(1) == sampled(1));
    CHECK(sampled(1) != sampled(2));
  }

  TEST_CASE("who asks for tokens hears of each, and may stop") {
    const Text text = expected();
    LanguageModel model = open();
    GenerateOptions options = greedy(10);
    options.logprobs = 3;
    std::string heard;
    int count = 0;
    const GenerateResult result = model.generate(text.prompt, options, [&](const GeneratedToken& token) {
      heard += token.text;
      CHECK(token.top.size() == 3);
      CHECK(token.top[0].id == token.id);
      CHECK(token.top[0].logprob == *token.logprob);
      return ++count < 4;
    });
    CHECK(result.reason == FinishReason::cancelled);
    CHECK(result.tokens.size() == 4);
    CHECK(result.text.starts_with(heard));
  }

  TEST_CASE("a text ends at a stop") {
    const Text text = expected();
    LanguageModel model = open();
    const std::string whole = model.generate(text.prompt, greedy(16)).text;
    REQUIRE(whole.size() > 6);
    GenerateOptions options = greedy(16);
    options.stops = {whole.substr(3, 3)};
    const GenerateResult result = model.generate(text.prompt, options);
    CHECK(result.reason == FinishReason::stop);
    CHECK(result.text == whole.substr(0, whole.find(options.stops[0])));
  }

  TEST_CASE("stops are found across pieces, and nothing else is held back for long") {
    llm::StopFinder stops({"###", "end."});
    CHECK(stops.push("a#") == "a");
    CHECK(stops.push("#b") == "##b");
    CHECK(stops.push("the en") == "the ");
    CHECK(stops.push("d") == "");
    CHECK_FALSE(stops.found());
    CHECK(stops.push(". more") == "");
    CHECK(stops.found());
    CHECK(stops.push("x") == "");
    llm::StopFinder open_end({"ab"});
    CHECK(open_end.push("xa") == "x");
    CHECK(open_end.finish() == "a");
  }

  TEST_CASE("a full context ends the text, or goes on with its later half") {
    const Text text = expected();
    LanguageModel model = open({}, 32);
    GenerateOptions options = greedy(40);
    options.shift = false;
    const GenerateResult ends = model.generate(text.prompt, options);
    CHECK(ends.reason == FinishReason::length);
    CHECK(ends.tokens.size() == 32 - text.prompt.size() + 1);
    options.shift = true;
    options.keep = 2;
    CHECK(model.generate(text.prompt, options).tokens.size() == 40);
    const std::vector<TokenId> longer(33, 1);
    CHECK(test::error_of([&] { model.generate(longer, options); }).message ==
          "[generate] the prompt has 33 tokens, the context 32; -c makes it larger");
    CHECK(test::error_of([&] { model.generate(std::vector<TokenId>{9999}, options); }).message ==
          "[model] token 9999 is not one of 512");
  }

  TEST_CASE("what was computed for a prompt is kept in a file") {
    const Text text = expected();
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / "weft-prompt-cache.safetensors";
    std::filesystem::remove(file);
    LanguageModel model = open();
    CHECK(model.load_cache(file) == 0);
    model.generate(text.prompt, greedy(1));
    model.save_cache(file);
    LanguageModel other = open();
    CHECK(other.load_cache(file) == text.prompt.size());
    const GenerateResult result = other.generate(text.prompt, greedy(16));
    CHECK(result.cached_tokens == std::ssize(text.prompt) - 1);
    CHECK(result.tokens == text.follows);
    LanguageModel halves = LanguageModel::open(kModel, {.cache_type = "f16"});
    CHECK(test::error_of([&] { halves.load_cache(file); }).kind == "invalid");
    std::filesystem::remove(file);
  }

  TEST_CASE("a cache that is refused takes no pages") {
    const Text text = expected();
    const test::ScopedFolder folder;
    LanguageModel floats = open({}, 64);
    floats.generate(text.prompt, greedy(1));
    floats.save_cache(folder.path / "cache");
    LanguageModel model = LanguageModel::open(kModel, {.context = 64, .cache_type = "f16"});
    for (int i = 0; i < 3; ++i)
      CHECK(test::error_of([&] { model.load_cache(folder.path / "cache"); }).kind == "invalid");
    CHECK(model.generate(text.prompt, greedy(60)).tokens.size() == 60);
  }

  TEST_CASE("models of two threads do not disturb each other") {
    const Text text = expected();
    LanguageModel model = open();
    std::vector<std::vector<TokenId>> want, got[2];
    const auto texts = [&](LanguageModel& of, std::vector<std::vector<TokenId>>& to) {
      for (TokenId first = 0; first < 6; ++first) {
        std::vector<TokenId> prompt = text.prompt;
        prompt[0] = first;
        to.push_back(of.generate(prompt, greedy(20)).tokens);
      }
    };
    texts(model, want);
    {
      std::vector<std::jthread> threads;
      for (auto& to : got)
        threads.emplace_back([&] {
          LanguageModel own = open();
          texts(own, to);
        });
    }
    CHECK(got[0] == want);
    CHECK(got[1] == want);
  }

  TEST_CASE("a cache of an unknown type, or of blocks that do not fit, is refused") {
    const auto error = [](const char* type) {
      return test::error_of([&] { LanguageModel::open(kModel, {.cache_type = type}); }).message;
    };
    CHECK(error("q3") == "[model] a cache is f32, f16, q8_0 or q4_0, not 'q3'");
    CHECK(error("q8_0") == "[model] heads of 16 columns are not whole blocks of q8_0: --cache-type f16");
  }

  TEST_CASE("a grammar is kept to") {
    LanguageModel model = open();
    GenerateOptions options{.sampler = {.temperature = 1, .seed = 3}, .max_tokens = 64};
    options.grammar = "root ::= [ab]{3} \"!\"";
    const std::string text = model.generate(expected().prompt, options).text;
    CHECK(text.size() == 4);
    CHECK(text.find_first_not_of("ab!") == std::string::npos);
  }
}

TEST_SUITE("gpu language models") {
  TEST_CASE("every device gives the same text, greedy and sampled") {
    const Text text = expected();
    const auto sampled = [&](LanguageModel& model) {
      return model.generate(text.prompt, {.sampler = {.seed = 7}, .max_tokens = 12}).tokens;
    };
    LanguageModel cpu = open();
    const std::vector<TokenId> want = sampled(cpu);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      LanguageModel model = open(device);
      CHECK(model.generate(text.prompt, greedy(16)).tokens == text.follows);
      CHECK(sampled(model) == want);
    });
  }

  TEST_CASE("after an error the next text is right, whatever was cut off") {
    const Text text = expected();
    LanguageModel cpu = open({}, 64);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const auto faults = std::make_shared<gpu::FaultPlan>(std::vector<std::string>{});
      const auto backend = std::make_shared<WebgpuBackend>(gpu.open({.faults = faults}));
      LanguageModel model =
          LanguageModel::open(kModel, {.device = Device(backend), .may_fall_back = false, .context = 64});
      int failed = 0;
      for (int calls = 1; calls <= 20; ++calls) {  // each a prompt of a length that was not recorded
        const std::span<const TokenId> prompt(text.prompt.data(), static_cast<size_t>(calls) + 2);
        const std::vector<TokenId> want = cpu.generate(prompt, greedy(4)).tokens;
        backend->device().trim();
        faults->plan(gpu::Fault::oom, calls, true);
        try {
          model.generate(prompt, greedy(4));
        } catch (const Error& e) {
          CHECK(e.kind() == ErrorKind::memory);
          ++failed;
        }
        faults->plan(gpu::Fault::oom, 0);
        CAPTURE(calls);
        CHECK(model.generate(prompt, greedy(4)).tokens == want);
      }
      CHECK(failed > 5);
    });
  }

  TEST_CASE("a model that neither a device nor the CPU has is opened once more") {
    const Text text = expected();
    const test::ScopedFolder folder;
    const std::filesystem::path file = folder.path / "model.gguf";
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      std::filesystem::copy_file(kModel, file, std::filesystem::copy_options::overwrite_existing);
      const auto faults = std::make_shared<gpu::FaultPlan>(std::vector<std::string>{});
      const Device device(std::make_shared<WebgpuBackend>(gpu.open({.faults = faults})));
      LanguageModel model = LanguageModel::open(file, {.device = device});
      faults->plan(gpu::Fault::device_lost, 1);
      std::filesystem::remove(file);
      for (int i = 0; i < 2; ++i)
        CHECK(test::error_of([&] { model.generate(text.prompt, greedy(2)); }).kind == "io");
      std::filesystem::copy_file(kModel, file);
      CHECK(model.generate(text.prompt, greedy(2)).tokens ==
            std::vector<TokenId>(text.follows.begin(), text.follows.begin() + 2));
    });
  }

  TEST_CASE("layers can be on two devices") {
    const Text text = expected();
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      LanguageModel model = LanguageModel::open(kModel, {.device = device, .gpu_layers = 1});
      CHECK(model.generate(text.prompt, greedy(4)).tokens ==
            std::vector<TokenId>(text.follows.begin(), text.follows.begin() + 4));
    });
  }
}
