// Long runs: memory must not grow with the tokens that were made, nor with the models that were opened. In
// `make test` short ones that look at what backends count; `make soak` sets SOAK, and looks at the process.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "backend/backend.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"
#include "support/tiny_model.h"
#include "weft/llm.h"

using namespace weft;

namespace {

bool is_long_run() {
  return std::getenv("SOAK") != nullptr;
}

struct Place {
  test::ScopedFolder folder;
  std::filesystem::path file = folder.path / "tiny.gguf";

  Place() {
    test::write_tiny_model(
        file, {.layers = 2, .width = 32, .hidden = 48, .heads = 2, .kv_heads = 1, .head_dim = 16});
  }
  LanguageModel open(const Device& device) const {
    return LanguageModel::open(file, {.device = device, .context = 128});
  }
};

/// Resident memory of this process, KiB.
int64_t resident() {
  std::istringstream lines(read_text("/proc/self/status").value_or(""));
  for (std::string word; lines >> word;)
    if (word == "VmRSS:" && lines >> word) return std::stoll(word);
  return 0;
}

/// Does something again and again: after the first tenth of the rounds nothing more is held.
template <typename Round>
void check_steady(const Device& device, int rounds, const char* what, const Round& round) {
  const int warm = std::max(rounds / 10, 1);
  uint64_t active = 0;
  int64_t before = 0;
  for (int i = 0; i < rounds; ++i) {
    round(i);
    if (i + 1 != warm) continue;
    active = device.backend().memory().active;
    before = resident();
  }
  CHECK(device.backend().memory().active == active);
  if (!is_long_run()) return;
  const int64_t grown = resident() - before;
  fmt::print("soak: {} {} on {}: {} KiB after the first {}, {:+} KiB at the end\n", rounds, what,
             device.name(), before, warm, grown);
  CHECK(grown < 4096);
}

void check_tokens(const Device& device, int64_t tokens) {
  const Place place;
  LanguageModel model = place.open(device);
  const int64_t each = std::min<int64_t>(tokens / 4, 1000);
  const std::vector<TokenId> prompt = {5, 6, 7};
  GenerateOptions options{.max_tokens = each, .ignore_end = true};
  int64_t made = 0;
  check_steady(device, static_cast<int>(tokens / each), fmt::format("x {} tokens", each).c_str(), [&](int i) {
    options.sampler.seed = static_cast<uint64_t>(i);
    made += std::ssize(model.generate(prompt, options).tokens);
  });
  CHECK(made == tokens);
}

void check_loads(const Device& device, int loads) {
  const Place place;
  const std::vector<TokenId> prompt = {5, 6, 7};
  const uint64_t active = device.backend().memory().active;
  check_steady(device, loads, "loads", [&](int) {
    place.open(device).generate(prompt, {.sampler = {.temperature = 0}, .max_tokens = 3});
  });
  CHECK(device.backend().memory().active == active);
}

}  // namespace

TEST_SUITE("base: soak") {
  TEST_CASE("tokens leave nothing behind") {
    check_tokens(Device(), is_long_run() ? 100'000 : 800);
  }
  TEST_CASE("models that were opened leave nothing behind") {
    check_loads(Device(), is_long_run() ? 200 : 10);
  }
}

TEST_SUITE("gpu soak") {
  TEST_CASE("tokens and models leave nothing behind on any device") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      check_tokens(device, is_long_run() ? 2000 : 160);
      check_loads(device, is_long_run() ? 20 : 3);
    });
  }
}
