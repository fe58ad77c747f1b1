#include "llm/choice.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "backend/webgpu/webgpu_backend.h"
#include "base/threefry.h"
#include "llm/sampler.h"
#include "ops/shorthand.h"
#include "support/gpus.h"

using namespace weft;

namespace {

constexpr size_t kTokens = 5000;  // more than one sort of a GPU takes

/// Logits without equal ones.
std::vector<float> logits_of(uint32_t seed) {
  std::vector<float> logits;
  for (uint32_t i = 0; i < kTokens; ++i)
    logits.push_back(static_cast<float>(threefry({seed, 0}, {i, 0})[0] * 0x1p-32 * 12));
  return logits;
}

TokenId chosen(const llm::Choice& choice, const std::vector<float>& logits, double share,
               const Device& device) {
  const Array x = Array::from_vector(logits, {1, std::ssize(logits)}, device);
  const Array number = Array::from_vector({static_cast<float>(share)}, {1}, device);
  const Array settings = Array::from_vector(choice.settings(), {3}, device);
  return llm::choose(choice.top_k, x, number, settings).to_vector<int32_t>().at(0);
}

/// What the device chooses is what the sampler chooses with the same seed.
void check_choices(const std::vector<SamplerOptions>& all, uint32_t rounds, const Device& device) {
  for (SamplerOptions options : all) {
    CAPTURE(options.top_k);
    CAPTURE(options.temperature);
    options.seed = 5;
    const std::optional<llm::Choice> choice = llm::choice_of(options);
    REQUIRE(choice);
    Sampler sampler(options);
    for (uint32_t i = 0; i < rounds; ++i) {
      const std::vector<float> logits = logits_of(i);
      const double share = sampler.share(0);
      CHECK(chosen(*choice, logits, share, device) == sampler.sample(logits));
    }
    std::vector<float> broken = logits_of(0);
    broken[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK(chosen(*choice, broken, 0.5, device) == -1);
  }
}

}  // namespace

TEST_SUITE("base: choice") {
  TEST_CASE("arrays choose what the sampler chooses") {
    check_choices({{.temperature = 0},
                   {},
                   {.temperature = 2, .top_k = 7, .top_p = 0.5F, .min_p = 0},
                   {.temperature = 1, .top_k = 100, .top_p = 1, .min_p = 0.3F},
                   {.temperature = 1.5F, .top_k = 0, .top_p = 1, .min_p = 0.1F},
                   {.temperature = 0.5F, .top_k = 40, .top_p = 0}},
                  50, {});
    // The ends of the numbers drawn.
    const llm::Choice three{.top_k = 3};
    std::vector<float> logits(kTokens, 0.0F);
    logits[70] = logits[2000] = logits[kTokens - 1] = 20;
    CHECK(chosen(three, logits, 0, {}) == 70);
    CHECK(chosen(three, logits, 0.5, {}) == 2000);
    CHECK(chosen(three, logits, 1 - 0x1p-24, {}) == kTokens - 1);
  }

  TEST_CASE("what needs the host is left to it") {
    CHECK(llm::choice_of({})->top_k == 40);
    CHECK(llm::choice_of({.temperature = 0, .top_k = 0, .top_p = 0.5F})->top_k == 1);
    CHECK_FALSE(llm::choice_of({.top_k = 0, .top_p = 0.5F}));
    CHECK_FALSE(llm::choice_of({.top_k = 1000}));
    CHECK_FALSE(llm::choice_of({.typical_p = 0.5F}));
    CHECK_FALSE(llm::choice_of({.repeat_penalty = 1.1F}));
    CHECK_FALSE(llm::choice_of({.temperature = 0, .logit_bias = {{1, 2.0F}}}));
    CHECK_FALSE(llm::choice_of({.mirostat = 2}));
    CHECK_FALSE(llm::choice_of({.dry_multiplier = 1}));
    CHECK_FALSE(llm::choice_of({.xtc_probability = 0.5F}));
    CHECK_FALSE(llm::choice_of({.min_keep = 2}));
  }
}

TEST_SUITE("gpu choice") {
  TEST_CASE("a device chooses what the sampler chooses") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      check_choices({{.temperature = 0}, {}, {.top_k = 0, .top_p = 1}}, 3,
                    Device(std::make_shared<WebgpuBackend>(gpu.open())));
    });
  }
}
