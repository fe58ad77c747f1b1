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

/// Looks on while something is done again and again: the second tenth of the rounds and the last must hold
/// the same.
class Watch {
 public:
  Watch(const Device& device, int64_t rounds) : device_(device), rounds_(rounds) {}

  void round() {
    const int64_t tenth = 10 * round_++ / rounds_;
    if (tenth != 1 && tenth != 9) return;
    Held& held = tenth == 1 ? early_ : late_;
    held.active = std::max(held.active, device_.backend().memory().active);
    const int64_t every = rounds_ < 1000 ? 1 : 10;
    if (is_long_run() && round_ % every == 0) held.resident = std::max(held.resident, resident());
  }

  void check(const char* what, int64_t expected_growth = 0) const {
    CHECK(round_ == rounds_);
    CHECK(late_.active == early_.active);
    if (!is_long_run()) return;
    fmt::print("soak: {} {} on {}: {} KiB, at the end {} KiB\n", rounds_, what, device_.name(),
               early_.resident, late_.resident);
    CHECK(late_.resident - early_.resident < expected_growth + 2048);
  }

 private:
  struct Held {
    uint64_t active = 0;
    int64_t resident = 0;
  };
  Device device_;
  int64_t rounds_, round_ = 0;
  Held early_, late_;
};

void check_tokens(const Device& device, int64_t tokens) {
  const Place place;
  LanguageModel model = place.open(device);
  Watch watch(device, tokens);
  const std::vector<TokenId> prompt = {5, 6, 7};
  GenerateOptions options{.sampler = {.seed = 1}, .max_tokens = model.context(), .ignore_end = true};
  model.generate(prompt, options);  // plans for every number of keys keep memory
  options.max_tokens = tokens;
  model.generate(prompt, options, [&](const GeneratedToken&) {
    watch.round();
    return true;
  });
  constexpr int64_t kBytesOfToken = 32;  // its id twice, its text, and as much again where vectors grow
  watch.check("tokens", tokens * kBytesOfToken / 1024);
}

void check_loads(const Device& device, int loads) {
  const Place place;
  Watch watch(device, loads);
  const std::vector<TokenId> prompt = {5, 6, 7};
  const uint64_t active = device.backend().memory().active;
  const auto load = [&] {
    place.open(device).generate(prompt, {.sampler = {.temperature = 0}, .max_tokens = 3});
  };
  // A GPU keeps bind groups for all combinations of the pool's memory that it has met, and meets few new ones
  // later.
  for (int i = 0; is_long_run() && i < loads; ++i) load();
  for (int i = 0; i < loads; ++i) {
    load();
    watch.round();
  }
  watch.check("loads");
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
      const bool is_slow = gpu.adapter.info().type == gpu::AdapterType::cpu;
      check_tokens(device, !is_long_run() ? 160 : is_slow ? 2000 : 100'000);
      check_loads(device, is_long_run() ? 200 : 10);
    });
  }
}
