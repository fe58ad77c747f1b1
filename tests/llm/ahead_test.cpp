#include "llm/ahead.h"

#include <doctest/doctest.h>

#include <list>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/verify.h"
#include "support/gpus.h"

using namespace weft;

namespace {

const std::filesystem::path kFolder = WEFT_SOURCE_DIR "/tests/data/models/qwen2";

std::vector<TokenId> prompt() {
  const llm::Expected e = llm::load_expected(kFolder / "expect.safetensors");
  return {e.ids.begin(), e.ids.begin() + e.length};
}

LanguageModel open(const Device& device, int64_t context = 0) {
  return LanguageModel::open(kFolder / "model-f32.gguf", {.device = device, .context = context});
}

GenerateOptions greedy(int64_t count, int64_t ahead = 0) {
  return {.sampler = {.temperature = 0}, .max_tokens = count, .ignore_end = true, .ahead = ahead};
}

GenerateOptions sampled(int64_t count, int64_t ahead = 0) {
  return {
      .sampler = {.temperature = 1.5F, .seed = 7}, .max_tokens = count, .ignore_end = true, .ahead = ahead};
}

Device device_of(const test::TestGpu& gpu, const gpu::DeviceOptions& options = {}) {
  return Device(std::make_shared<WebgpuBackend>(gpu.open(options)));
}

/// A text, and how it goes on.
struct Text {
  std::vector<TokenId> prompt;
  GenerateOptions options;
};

/// Prompts on both sides of a page, greedy and drawn, of which each wants another number of tokens: so each
/// leaves at another time, and others come in its place.
std::vector<Text> texts() {
  constexpr size_t kLengths[] = {5, 31, 1, 33, 64, 2, 1};
  constexpr int64_t kCounts[] = {3, 40, 17, 75, 1, 30, 9};
  std::vector<Text> all;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    std::vector<TokenId> ids;
    for (size_t t = 0; t < kLengths[i]; ++t)
      ids.push_back(static_cast<TokenId>((t * t * 7 + 31 * i + 5) % 90));
    GenerateOptions options = i % 3 == 1 ? sampled(kCounts[i]) : greedy(kCounts[i]);
    options.sampler.seed = i;
    options.sampler.top_k = i == 1 ? 5 : 40;
    all.push_back({ids, options});
  }
  return all;
}

/// All of them, at most `most` at a time, `steps` in a submit.
std::vector<std::vector<TokenId>> together(llm::Model& model, const std::vector<Text>& all, size_t most,
                                           int64_t steps) {
  struct Open {
    size_t text;
    llm::Sequence sequence;
    Sampler sampler;
  };
  std::vector<std::vector<TokenId>> made(all.size());
  std::list<Open> open;
  size_t begun = 0;
  llm::Ahead ahead(model, steps);
  const bool on_device = llm::Ahead::possible(model);
  while (begun < all.size() || !open.empty()) {
    while (begun < all.size() && open.size() < most) {
      Open& next = open.emplace_back(begun, model.new_sequence(static_cast<int32_t>(begun)),
                                     Sampler(all[begun].options.sampler));
      made[begun].push_back(next.sampler.sample(model.run(next.sequence, all[begun].prompt)));
      const llm::Choice choice = *llm::choice_of(all[begun].options.sampler);
      REQUIRE(ahead.takes(next.sequence, choice));
      ahead.join(next.sequence, next.sampler, choice);
      ++begun;
    }
    for (auto one = open.begin(); one != open.end();) {
      if (std::ssize(made[one->text]) < all[one->text].options.max_tokens) {
        ++one;
        continue;
      }
      ahead.leave(one->sequence);
      llm::truncate(one->sequence, 0, model.pages());
      one = open.erase(one);
    }
    std::vector<TokenId> last;
    std::vector<llm::Turn> turns;
    last.reserve(open.size());
    for (Open& one : open) {
      last.push_back(made[one.text].back());
      turns.push_back({one.sequence, std::span(&last.back(), 1)});
    }
    if (open.empty()) continue;
    std::vector<TokenId> ids;
    if (on_device) {
      ids = ahead.next(last, 100);
    } else {
      const std::vector<float> logits = model.run(turns);
      const size_t width = logits.size() / last.size();
      for (Open& one : open)
        ids.push_back(one.sampler.sample(std::span(logits).subspan(ids.size() * width, width)));
    }
    auto id = ids.begin();
    for (Open& one : open) made[one.text].push_back(*id++);
  }
  return made;
}

std::vector<std::vector<TokenId>> alone(const std::vector<Text>& all) {
  LanguageModel model = open({});
  std::vector<std::vector<TokenId>> made;
  for (const Text& text : all) made.push_back(model.generate(text.prompt, text.options).tokens);
  return made;
}

}  // namespace

TEST_SUITE("base: sequences together") {
  TEST_CASE("each goes on as it does alone, and ends when it likes") {
    llm::Model model(kFolder / "model-f32.gguf", {.context = 128, .sequences = 7});
    for (size_t most : {2, 7}) CHECK(together(model, texts(), most, 0) == alone(texts()));
    CHECK(model.pages().left() == 7 * 128 / llm::kPageRows);
  }
}

TEST_SUITE("gpu tokens made ahead") {
  TEST_CASE("sequences go on together as each does alone, and end when they like") {
    const std::vector<Text> all = texts();
    const std::vector<std::vector<TokenId>> expected = alone(all);
    // Kernels for each number of sequences take a software adapter seconds: two libraries, one way each.
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const bool dawn = gpu.library.name == "Dawn 2026";
      if (!dawn && gpu.library.name != "wgpu-native 29") return;
      llm::Model model(kFolder / "model-f32.gguf",
                       {.device = device_of(gpu), .context = 128, .sequences = 7});
      CHECK(together(model, all, dawn ? 4 : 2, dawn ? 3 : 0) == expected);
      CHECK(model.pages().left() == 7 * 128 / llm::kPageRows);

      // Steps of both sequences are submitted as those of one are.
      std::vector<llm::Sequence> sequences(2);
      std::vector<Sampler> samplers(2, Sampler({.temperature = 0}));
      llm::Ahead ahead(model, 4);
      for (size_t i = 0; i < 2; ++i) ahead.join(sequences[i], samplers[i], {});
      const gpu::Device& device = dynamic_cast<WebgpuBackend&>(model.device().backend()).device();
      std::vector<TokenId> last = {1, 2};
      for (const bool recorded : {false, true}) {
        const uint64_t before = device.counters().submits;
        for (int64_t left = 12; left > 0; --left) last = ahead.next(last, left);
        CHECK((!recorded || device.counters().submits - before == 3));
      }
    });
  }

  TEST_CASE("the text does not depend on how many are made ahead") {
    const std::vector<TokenId> text = prompt();
    LanguageModel cpu = open({});
    const GenerateResult whole = cpu.generate(text, greedy(24));
    const std::vector<TokenId>& best = whole.tokens;
    const std::vector<TokenId> drawn = cpu.generate(text, sampled(12)).tokens,
                               longer = cpu.generate(text, greedy(80)).tokens;
    const std::string words = whole.text;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      LanguageModel model = open(device_of(gpu));
      CHECK(model.generate(text, greedy(80)).tokens == longer);  // more keys than one plan is for
      for (int64_t ahead : {1, 2, 16}) {
        CAPTURE(ahead);
        CHECK(model.generate(text, greedy(24, ahead)).tokens == best);
        CHECK(model.generate(text, sampled(12, ahead)).tokens == drawn);
        // The end comes in the midst of what was made ahead, and what is behind it leaves no trace.
        GenerateOptions options = greedy(24, ahead);
        options.stops = {words.substr(words.size() / 2, 4)};
        const GenerateResult stopped = model.generate(text, options);
        CHECK(stopped.reason == FinishReason::stop);
        CHECK(stopped.text == words.substr(0, words.find(options.stops[0])));
        int heard = 0;
        const GenerateResult cancelled =
            model.generate(text, greedy(24, ahead), [&](const GeneratedToken&) { return ++heard < 5; });
        CHECK(cancelled.tokens == std::vector<TokenId>(best.begin(), best.begin() + 5));
        std::vector<TokenId> more = text;
        more.insert(more.end(), best.begin(), best.begin() + 5);
        const GenerateResult on = model.generate(more, greedy(6, ahead));
        CHECK(on.cached_tokens == std::ssize(more) - 1);
        CHECK(on.tokens == std::vector<TokenId>(best.begin() + 5, best.begin() + 11));
      }
    });
  }

  TEST_CASE("a full context ends the text, or goes on with its later half") {
    const std::vector<TokenId> text = prompt();
    LanguageModel cpu = open({}, 32);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      LanguageModel model = open(device_of(gpu), 32);
      for (int64_t ahead : {1, 16}) {
        GenerateOptions options = greedy(30, ahead);
        options.keep = 2;
        CHECK(model.generate(text, options).tokens == cpu.generate(text, options).tokens);
        options.shift = false;
        CHECK(model.generate(text, options).tokens == cpu.generate(text, options).tokens);
      }
    });
  }

  TEST_CASE("one submit for all tokens of a group, and nothing is compiled or bound anew") {
    const std::vector<TokenId> text = prompt();
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const auto backend = std::make_shared<WebgpuBackend>(gpu.open());
      LanguageModel model = open(Device(backend));
      for (const uint64_t ahead : {1, 2, 16}) {
        CAPTURE(ahead);
        constexpr int64_t count = 20;  // all in one table of positions: its end ends a group
        REQUIRE(std::ssize(text) + count <= 64);
        gpu::Counters first, last;
        int64_t heard = 0;
        model.generate(text, greedy(count + 1, static_cast<int64_t>(ahead)), [&](const GeneratedToken&) {
          if (++heard == 4) first = backend->device().counters();
          last = backend->device().counters();
          return true;
        });
        CHECK(last.pipelines == first.pipelines);
        CHECK(last.bind_groups == first.bind_groups);
        CHECK(last.buffers == first.buffers);
        CHECK(heard == count + 1);

        // When the prompt is there, too, even the first token finds everything.
        model.generate(text, greedy(count + 1, static_cast<int64_t>(ahead)));
        const gpu::Counters before = backend->device().counters();
        model.generate(text, greedy(count + 1, static_cast<int64_t>(ahead)));
        const gpu::Counters after = backend->device().counters();
        CHECK(after.pipelines == before.pipelines);
        CHECK(after.bind_groups == before.bind_groups);
        const uint64_t groups = (uint64_t{count} + ahead - 1) / ahead;
        CHECK(after.submits - before.submits == 2 + groups);  // the prompt's last token and its logits
      }
    });
  }

  TEST_CASE("when the device is lost meanwhile, the CPU goes on with the same text") {
    const std::vector<TokenId> text = prompt();
    LanguageModel cpu = open({});
    const std::vector<TokenId> best = cpu.generate(text, greedy(40)).tokens;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      for (const char* fault : {"device_lost:12", "map_timeout:6"}) {
        CAPTURE(fault);
        const gpu::DeviceOptions options{
            .deadline = std::chrono::milliseconds(300),
            .faults = std::make_shared<gpu::FaultPlan>(std::vector<std::string>{fault})};
        LanguageModel model = open(device_of(gpu, options));
        CHECK(model.generate(text, greedy(40, 2)).tokens == best);
        CHECK(model.device() == Device());
      }
    });
  }
}
