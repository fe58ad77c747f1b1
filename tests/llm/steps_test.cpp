// Steps of a text that grows: what is made anew on the way.
#include "llm/steps.h"

#include <doctest/doctest.h>

#include "backend/webgpu/webgpu_backend.h"
#include "plan/eval.h"
#include "support/gpus.h"
#include "weft/llm.h"

using namespace weft;

namespace {

const std::filesystem::path kModel = WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf";
constexpr int64_t kTokens = 340;  // keys of 64, 128, 192, 256 and 320 end in between

GenerateOptions greedy() {
  return {.sampler = {.temperature = 0}, .max_tokens = kTokens, .ignore_end = true};
}

const std::vector<TokenId> kPrompt = {3, 1, 4, 1, 5};

/// Tokens of a long text; no plan is made after the first few, and `at` hears of each token.
std::vector<TokenId> long_text(const Device& device, const std::function<void(int64_t token)>& at = {}) {
  LanguageModel model = LanguageModel::open(kModel, {.device = device, .context = 400});
  int64_t heard = 0;
  uint64_t plans = 0;
  std::vector<TokenId> tokens = model
                                    .generate(kPrompt, greedy(),
                                              [&](const GeneratedToken&) {
                                                if (++heard == 4) plans = eval_counters().plans_built;
                                                if (at) at(heard);
                                                return true;
                                              })
                                    .tokens;
  CHECK(std::ssize(tokens) == kTokens);
  CHECK(eval_counters().plans_built == plans);
  return tokens;
}

}  // namespace

TEST_SUITE("base: steps") {
  TEST_CASE("a text that grows makes no plans") {
    long_text({});
  }
}

TEST_SUITE("gpu steps") {
  TEST_CASE("a text that grows makes no plans, compiles nothing and binds nothing") {
    const std::vector<TokenId> expected = long_text({});
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      for (const bool software : {true, false}) {
        CAPTURE(software);
        const auto backend = std::make_shared<WebgpuBackend>(gpu.open(), software);
        if (!backend->has_kernel("cached_attention")) continue;  // made of other ops, which pay for each key
        gpu::Counters first, last;
        const std::vector<TokenId> tokens = long_text(Device(backend), [&](int64_t token) {
          if (token == 4) first = backend->device().counters();
          last = backend->device().counters();
        });
        CHECK(tokens == expected);
        CHECK(last.pipelines == first.pipelines);
        CHECK(last.bind_groups == first.bind_groups);
      }
    });
  }
}
