// Steps of a text that grows: what is made anew on the way.
#include "llm/steps.h"

#include <doctest/doctest.h>

#include <map>

#include "backend/webgpu/webgpu_backend.h"
#include "plan/eval.h"
#include "support/gpus.h"
#include "weft/llm.h"

using namespace weft;

namespace {

const std::filesystem::path kModel = WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf";
// Tables of 64 positions end in between. Steps are recorded for up to 128 keys, and then for all.
constexpr int64_t kTokens = 340, kBegun = 4, kMany = 140;

GenerateOptions greedy() {
  return {.sampler = {.temperature = 0}, .max_tokens = kTokens, .ignore_end = true};
}

const std::vector<TokenId> kPrompt = {3, 1, 4, 1, 5};

/// Tokens of a long text, of which `at` hears. Few plans are made on the way.
std::vector<TokenId> long_text(const Device& device, const std::function<void(int64_t token)>& at = {}) {
  LanguageModel model = LanguageModel::open(kModel, {.device = device, .context = 400});
  int64_t heard = 0;
  std::map<int64_t, uint64_t> plans;
  const auto on_token = [&](const GeneratedToken&) {
    plans[++heard] = eval_counters().plans_built;
    if (at) at(heard);
    return true;
  };
  std::vector<TokenId> tokens = model.generate(kPrompt, greedy(), on_token).tokens;
  CHECK(std::ssize(tokens) == kTokens);
  CHECK(plans[kMany] - plans[kBegun] <= 2);  // the step, and a part of a list
  CHECK(plans[kTokens] == plans[kMany]);
  return tokens;
}

}  // namespace

TEST_SUITE("base: steps") {
  TEST_CASE("a text that grows makes few plans") {
    long_text({});
  }
}

TEST_SUITE("gpu steps") {
  TEST_CASE("a text that grows makes few plans, and compiles nothing") {
    const std::vector<TokenId> expected = long_text({});
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      for (const bool software : {true, false}) {
        CAPTURE(software);
        const auto backend = std::make_shared<WebgpuBackend>(gpu.open(), software);
        if (!backend->has_kernel("cached_attention")) continue;  // made of other ops, which pay for each key
        std::map<int64_t, gpu::Counters> seen;
        const auto tokens =
            long_text(Device(backend), [&](int64_t token) { seen[token] = backend->device().counters(); });
        CHECK(tokens == expected);
        CHECK(seen[kTokens].pipelines == seen[kBegun].pipelines);
        CHECK(seen[kTokens].bind_groups == seen[kMany].bind_groups);
      }
    });
  }
}
