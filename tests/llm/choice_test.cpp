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

/// The choices of rows of logits that come together.
std::vector<TokenId> chosen(const std::vector<llm::Choice>& choices,
                            const std::vector<std::vector<float>>& logits, const std::vector<double>& shares,
                            const Device& device) {
  const auto n = std::ssize(choices);
  std::vector<float> x, numbers, settings;
  int64_t top_k = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    x.insert(x.end(), logits[i].begin(), logits[i].end());
    numbers.push_back(static_cast<float>(shares[i]));
    const auto of_row = choices[i].settings();
    settings.insert(settings.end(), of_row.begin(), of_row.end());
    top_k = std::max(top_k, choices[i].top_k);
  }
  return llm::choose(top_k, Array::from_vector(x, {n, std::ssize(logits[0])}, device),
                     Array::from_vector(numbers, {n}, device),
                     Array::from_vector(settings, {n, llm::Choice::kSettings}, device))
      .to_vector<int32_t>();
}

TokenId chosen(const llm::Choice& choice, const std::vector<float>& logits, double share,
               const Device& device) {
  return chosen(std::vector{choice}, {logits}, {share}, device).at(0);
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

/// Rows of one array, each with options of its own.
void check_rows(const Device& device) {
  std::vector<Sampler> samplers;
  std::vector<llm::Choice> choices;
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 0},
        {.seed = 3},
        {.temperature = 2, .top_k = 7, .top_p = 0.5F, .min_p = 0, .seed = 9},
        {.temperature = 1, .top_k = 60, .top_p = 1, .min_p = 0.3F, .seed = 4}}) {
    samplers.emplace_back(options);
    choices.push_back(*llm::choice_of(options));
  }
  for (uint32_t round = 0; round < 5; ++round) {
    std::vector<std::vector<float>> logits;
    std::vector<double> shares;
    std::vector<TokenId> want;
    for (size_t i = 0; i < samplers.size(); ++i) {
      logits.push_back(logits_of(10 * round + static_cast<uint32_t>(i)));
      shares.push_back(samplers[i].share(0));
      want.push_back(samplers[i].sample(logits[i]));
    }
    CHECK(chosen(choices, logits, shares, device) == want);
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
                   {.temperature = 0.5F, .top_k = 40, .top_p = 0},
                   {.top_p = -1},
                   {.min_p = 1.5F},
                   {.top_k = 0, .top_p = 2, .min_p = 9}},
                  50, {});
    // The ends of the numbers drawn.
    const llm::Choice three{.top_k = 3};
    std::vector<float> logits(kTokens, 0.0F);
    logits[70] = logits[2000] = logits[kTokens - 1] = 20;
    CHECK(chosen(three, logits, 0, {}) == 70);
    CHECK(chosen(three, logits, 0.5, {}) == 2000);
    CHECK(chosen(three, logits, 1 - 0x1p-24, {}) == kTokens - 1);
  }

  TEST_CASE("rows that are chosen in different ways") {
    check_rows({});
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
      check_choices({{.temperature = 0},
                     {},
                     {.top_k = 0, .top_p = 1},
                     {.top_p = -1},
                     {.min_p = 1.5F},
                     {.top_k = 0, .top_p = 2, .min_p = 9}},
                    3, Device(std::make_shared<WebgpuBackend>(gpu.open())));
    });
  }

  TEST_CASE("rows that are chosen in different ways") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      if (gpu.library.name == "Dawn 2026") check_rows(Device(std::make_shared<WebgpuBackend>(gpu.open())));
    });
  }
}
