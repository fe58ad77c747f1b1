// Keys and values in blocks of q8_0 and q4_0, from loading to generation.
#include <doctest/doctest.h>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/model.h"
#include "support/gpus.h"
#include "support/relative_error.h"
#include "support/scoped.h"
#include "support/tiny_model.h"

using namespace weft;
namespace fs = std::filesystem;

namespace {

/// A model whose heads are whole blocks.
struct Place {
  test::ScopedFolder folder;
  fs::path file = folder.path / "tiny.gguf";
  std::vector<TokenId> text;

  Place() {
    test::write_tiny_model(file);
    for (int i = 0; i < 70; ++i) text.push_back((i * i * 7 + 31) % 512);
  }
  LanguageModel open(const std::string& cache, const Device& device = {}, int64_t context = 128) const {
    return LanguageModel::open(file, {.device = device, .context = context, .cache_type = cache});
  }
};

GenerateOptions greedy(int64_t count) {
  return {.sampler = {.temperature = 0}, .max_tokens = count, .ignore_end = true};
}

constexpr const char* kTypes[] = {"q8_0", "q4_0"};

}  // namespace

TEST_SUITE("base: block caches") {
  TEST_CASE("logits are near those of f16, the nearer the more bits") {
    const Place place;
    const auto logits = [&](const char* type) { return place.open(type).logits(place.text); };
    const std::vector<float> want = logits("f16");
    CHECK(test::relative_error(logits("f32"), want) < 0.001);
    CHECK(test::relative_error(logits("q8_0"), want) < 0.02);
    const double four = test::relative_error(logits("q4_0"), want);
    CHECK(four < 0.3);
    CHECK(four > 0.01);  // the blocks are really used
  }

  TEST_CASE("one token at a time gives what a prompt gives") {
    const Place place;
    for (const quant::Type type : {quant::Type::q8_0, quant::Type::q4_0}) {
      llm::Model model(place.file, {.context = 128, .cache_type = type});
      llm::Sequence whole = model.new_sequence();
      const std::vector<float> want = model.run(whole, place.text);
      llm::truncate(whole, 0, model.pages());
      llm::Sequence parts = model.new_sequence();
      std::vector<float> got = model.run(parts, std::span(place.text).first(33));
      for (size_t i = 33; i < place.text.size(); ++i) got = model.run(parts, std::span(&place.text[i], 1));
      CHECK(test::relative_error(got, want) < 0.02);  // codes at a border may fall to the other side
    }
  }

  TEST_CASE("generation, other beginnings, files of prompts, full contexts") {
    const Place place;
    const fs::path saved = place.folder.path / "prompt.safetensors";
    for (const char* type : kTypes) {
      CAPTURE(type);
      LanguageModel model = place.open(type);
      const std::vector<TokenId> want = model.generate(place.text, greedy(20)).tokens;
      CHECK(want.size() == 20);

      // What is left behind the common beginning is forgotten.
      std::vector<TokenId> other = place.text;
      other[40] = 1;
      CHECK(model.generate(other, greedy(3)).cached_tokens == 40);
      const GenerateResult back = model.generate(place.text, greedy(20));
      CHECK(back.cached_tokens == 40);
      CHECK(back.tokens == want);

      model.save_cache(saved);
      LanguageModel loaded = place.open(type);
      CHECK(loaded.load_cache(saved) == place.text.size() + 19);
      const GenerateResult again = loaded.generate(place.text, greedy(20));
      CHECK(again.cached_tokens == std::ssize(place.text) - 1);
      CHECK(again.tokens == want);
      LanguageModel halves = place.open("f16");
      CHECK(test::error_of([&] { halves.load_cache(saved); }).kind == "invalid");

      LanguageModel small = place.open(type, {}, 80);
      CHECK(small.generate(place.text, greedy(60)).tokens.size() == 60);
    }
  }
}

TEST_SUITE("gpu block caches") {
  TEST_CASE("every device gives the CPU's logits, and generates") {
    const Place place;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      for (const char* type : kTypes) {
        CAPTURE(type);
        LanguageModel model = place.open(type, device), cpu = place.open(type);
        CHECK(test::relative_error(model.logits(place.text), cpu.logits(place.text)) < 0.02);
        const std::vector<TokenId> first = model.generate(place.text, greedy(6)).tokens;
        CHECK(first.size() == 6);
        CHECK(model.generate(place.text, greedy(6)).tokens == first);
      }
    });
  }
}
