// Every way of computing faster, left out: models give the same logits without it.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/ahead.h"
#include "llm/verify.h"
#include "support/gpus.h"
#include "support/relative_error.h"
#include "support/scoped.h"
#include "support/tiny_model.h"

using namespace weft;
using namespace weft::llm;
namespace fs = std::filesystem;

namespace {

const fs::path kModels = WEFT_SOURCE_DIR "/tests/data/architectures";
constexpr const char* kNames[] = {"llama", "qwen2", "gemma3", "mixtral"};

/// What a backend says about itself, where that is another thing than it would say.
struct Choices {
  std::optional<int64_t> joined_rows = {}, halves_rows = {};
  bool codes = true, attention = true;
};

class ChoosingBackend : public WebgpuBackend {
 public:
  ChoosingBackend(gpu::Device device, bool software, const Choices& choices)
      : WebgpuBackend(std::move(device), software), choices_(choices) {}
  int64_t joined_rows() const override { return choices_.joined_rows.value_or(WebgpuBackend::joined_rows()); }
  int64_t halves_rows() const override { return choices_.halves_rows.value_or(WebgpuBackend::halves_rows()); }
  bool prefers_codes() const override { return choices_.codes && WebgpuBackend::prefers_codes(); }
  bool has_kernel(std::string_view op) const override {
    return (choices_.attention || op != "cached_attention") && WebgpuBackend::has_kernel(op);
  }

 private:
  Choices choices_;
};

/// All as it is but for one thing.
struct Path {
  const char* name;
  void (*without)(gpu::Features&) = nullptr;  ///< as WEFT_GPU_DISABLE
  Choices choices = {};
  bool blocks = false;  ///< about weights in blocks: these are always tried
};

const Path kPaths[] = {
    {"everything"},
    {"no f16", [](gpu::Features& f) { f.f16 = false; }},
    {"no subgroups", [](gpu::Features& f) { f.subgroups = false; }},
    {"no subgroup matrices", [](gpu::Features& f) { f.matrices.clear(); }},
    {"no immediates", [](gpu::Features& f) { f.immediates = false; }},
    {"no last workgroup", [](gpu::Features& f) { f.last_workgroup = false; }},
    {"no dot products of bytes", [](gpu::Features& f) { f.dot4 = false; }},
    {"no packing of halves", [](gpu::Features& f) { f.pack_f16 = f.unpack_f16 = false; }},
    {"products that end by themselves", {}, {.joined_rows = 0}, true},
    {"activations as floats", {}, {.codes = false}, true},
    {"halves of all weights", {}, {.halves_rows = 4}, true},
    {"attention of other ops", {}, {.attention = false}},
    {"no lockstep", [](gpu::Features& f) { f.lockstep = false; }},
};

Device device_of(const test::TestGpu& gpu, const Path& path, bool software) {
  gpu::Features features = gpu.features;
  if (path.without) path.without(features);
  return Device(std::make_shared<ChoosingBackend>(gpu::Device::create(gpu.adapter, features, {}), software,
                                                  path.choices));
}

/// The likeliest tokens behind a text; `steps` of them in a submit.
std::vector<TokenId> greedy(Model& model, std::span<const TokenId> text, size_t count, int64_t steps) {
  Sequence sequence = model.new_sequence();
  Sampler sampler({.temperature = 0});
  std::vector<TokenId> tokens = {sampler.sample(model.run(sequence, text))};
  {
    Ahead ahead(model, steps);
    ahead.join(sequence, sampler, Choice());
    while (tokens.size() < count) {
      const TokenId last = tokens.back();
      tokens.push_back(Ahead::possible(model)
                           ? ahead.next(std::span(&last, 1), static_cast<int64_t>(count - tokens.size()))[0]
                           : sampler.sample(model.run(sequence, std::span(&last, 1))));
    }
  }
  truncate(sequence, 0, model.pages());
  return tokens;
}

/// Passes and steps, tokens made ahead and several sequences at once: all as transformers has it.
void check_golden(const std::string& name, const Device& device) {
  CAPTURE(name);
  Model model(kModels / name, {.device = device, .sequences = 2, .cache_type = quant::Type::f32});
  const Expected expected = load_expected(kModels / name / "expect.safetensors");
  const Comparison all = compare(model, expected);
  CHECK(all.max < 0.005);
  CHECK(all.same_greedy);

  const auto length = static_cast<size_t>(expected.length), follow = static_cast<size_t>(expected.follow);
  const std::vector<TokenId> text(expected.ids.begin(), expected.ids.begin() + expected.length),
      best(expected.greedy.begin(), expected.greedy.begin() + expected.follow);
  for (const int64_t steps : {1, 2, 16}) {
    CAPTURE(steps);
    CHECK(greedy(model, text, follow, steps) == best);
  }

  Sequence whole = model.new_sequence(), half = model.new_sequence(1);
  model.run(whole, text);
  model.run(half, std::span(text).first(length / 2));
  const Turn turns[] = {{whole, std::span(best).first(1)}, {half, std::span(text).subspan(length / 2, 1)}};
  const std::vector<float> together = model.run(turns);
  const auto row = [&](const std::vector<float>& logits, size_t i) {
    const auto first = logits.begin() + static_cast<int64_t>(i) * expected.vocabulary;
    return std::vector<float>(first, first + expected.vocabulary);
  };
  const std::vector<float> next = row(together, 0);
  CHECK(std::ranges::max_element(next) - next.begin() == best[1]);
  CHECK(test::relative_error(row(together, 1), row(expected.logits, length / 2)) < 0.01);
}

/// Weights in blocks: logits of a text in parts of 5, 1 and 3 tokens.
std::vector<float> blocks_logits(const fs::path& file, const Device& device) {
  Model model(file, {.device = device, .context = 64});
  std::vector<TokenId> text;
  for (int i = 0; i < 9; ++i) text.push_back((i * i * 7 + 31) % 512);
  Sequence sequence = model.new_sequence();
  std::vector<float> logits;
  for (const auto& [first, count] : {std::pair{0, 5}, {5, 1}, {6, 3}}) {
    const std::vector<float> part =
        model.run(sequence, std::span(text).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

/// Models with the adapter's own kind of kernels, and weights in blocks with those for GPUs: larger ones of
/// these take a software adapter minutes to compile. `chosen`: which model runs with a path on a library.
void check_paths(const std::function<bool(size_t path, size_t library, size_t model)>& chosen) {
  const test::ScopedFolder folder;
  const fs::path blocks = folder.path / "blocks.gguf";
  test::write_tiny_model(
      blocks, {.layers = 1, .width = 256, .hidden = 256, .head_dim = 64, .type = quant::Type::q4_k});
  const std::vector<float> expected = blocks_logits(blocks, {});
  size_t library = 0;
  test::on_every_gpu([&](const test::TestGpu& gpu) {
    const bool software = gpu.adapter.info().type == gpu::AdapterType::cpu;
    for (size_t i = 0; i < std::size(kPaths); ++i) {
      const Path& path = kPaths[i];
      CAPTURE(std::string(path.name));
      for (size_t model = 0; model < std::size(kNames); ++model)
        if (chosen(i, library, model)) check_golden(kNames[model], device_of(gpu, path, software));
      if (chosen(i, library, std::size(kNames)))
        CHECK(test::relative_error(blocks_logits(blocks, device_of(gpu, path, false)), expected) < 0.01);
    }
    ++library;
  });
}

}  // namespace

TEST_SUITE("base: fast paths") {
  TEST_CASE("on the CPU") {
    for (const char* name : kNames) check_golden(name, {});
  }
}

TEST_SUITE("gpu fast paths") {
  TEST_CASE("without any one of them") {
    // One model and one library for each path: a software adapter takes seconds to compile its kernels.
    check_paths([](size_t path, size_t library, size_t model) {
      const bool here = library == (path % 2 == 0 ? 0u : 2u);  // Dawn and wgpu-native of this year
      return here && (model == std::size(kNames) ? kPaths[path].blocks : model == path % std::size(kNames));
    });
  }

  TEST_CASE("without any one of them, every model and library" * doctest::skip()) {
    check_paths([](size_t, size_t, size_t) { return true; });
  }
}
