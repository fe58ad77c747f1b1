#include "llm/ahead.h"

#include <doctest/doctest.h>

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

}  // namespace

TEST_SUITE("gpu tokens made ahead") {
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
