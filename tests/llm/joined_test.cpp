// Products that go on with the steps behind them (plan/join.h), as language models on a GPU have them.
#include <doctest/doctest.h>

#include <numeric>
#include <utility>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/model.h"
#include "llm/rope.h"
#include "llm/steps.h"
#include "support/gpus.h"
#include "support/relative_error.h"
#include "support/scoped.h"
#include "support/tiny_model.h"
#include "weft/create.h"
#include "weft/ops.h"

using namespace weft;

namespace {

/// A prompt in parts of 1, 3 and 1 tokens: the last logits.
std::vector<float> logits_of(llm::Model& model) {
  std::vector<TokenId> text;
  for (int i = 0; i < 5; ++i) text.push_back((i * i * 7 + 31) % 512);
  llm::Sequence sequence = model.new_sequence();
  std::vector<float> logits;
  size_t at = 0;
  for (size_t count : {1, 3, 1}) {
    logits = model.run(sequence, std::span(text).subspan(at, count));
    at += count;
  }
  return logits;
}

/// Every question's answer with one of its numbers, in turn, doubled or halved.
void set_unusual_ways(const std::vector<webgpu::Asked>& asked, size_t turn, webgpu::Tuning& tuning) {
  for (const webgpu::Asked& a : asked) {
    const webgpu::Question& question = a.question;
    for (size_t i = 0; i < 2 * question.usual.size(); ++i) {
      webgpu::Way way = question.usual;
      int64_t& number = way[(turn + i) / 2 % way.size()];
      number = (turn + i) % 2 == 0 ? number * 2 : number / 2;
      if (number < 1 || !question.possible(way)) continue;
      tuning.set(question.key, way);
      break;
    }
  }
}

}  // namespace

TEST_SUITE("gpu joined products") {
  TEST_CASE("every type and number of rows gives the CPU's logits") {
    const test::ScopedFolder folder;
    const auto file = folder.path / "tiny.gguf";
    const llm::LoadOptions options{.context = 32};
    bool first = true;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      using enum quant::Type;
      struct Case {
        quant::Type type;
        bool subgroups;
      };
      std::vector<Case> cases = {{q4_k, true}};
      if (first) cases = {{f32, true}, {f16, false}, {bf16, true}, {q8_0, false}, {q4_0, true}, {q6_k, true}};
      first = false;
      for (const Case& one : cases) {
        CAPTURE(quant::traits(one.type).name);
        test::write_tiny_model(file, {.width = 256, .hidden = 256, .head_dim = 64, .type = one.type});
        llm::Model cpu(file, options);
        gpu::Features features = gpu.features;
        features.subgroups = features.subgroups && one.subgroups;
        llm::LoadOptions on_gpu = options;
        // As for a real GPU: software adapters join less.
        on_gpu.device = Device(std::make_shared<WebgpuBackend>(gpu::Device::create(gpu.adapter, features, {}),
                                                               /*software=*/false));
        llm::Model model(file, on_gpu);
        CHECK(test::relative_error(logits_of(model), logits_of(cpu)) < 0.01);
      }
    });
  }

  TEST_CASE("all ways to run the kernels of a token give the same") {
    const test::ScopedFolder folder;
    const auto file = folder.path / "tiny.gguf";
    test::write_tiny_model(
        file, {.layers = 1, .width = 512, .hidden = 512, .head_dim = 64, .type = quant::Type::q4_k});
    bool first = true;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (!std::exchange(first, false)) return;  // a kernel takes llvmpipe a second
      std::vector<webgpu::Asked> asked;
      const auto logits = [&](const webgpu::Tuning& tuning) {
        auto backend = std::make_shared<WebgpuBackend>(gpu.open(), /*software=*/false);
        backend->tuning() = tuning;
        llm::Model model(file, {.device = Device(backend), .context = 128});
        llm::Sequence sequence = model.new_sequence();
        std::vector<TokenId> text(70);  // more than a split of the keys
        std::iota(text.begin(), text.end(), 7);
        model.run(sequence, text);
        std::vector<float> last = model.run(sequence, std::span(text).first(1));
        asked = backend->asked();
        return last;
      };
      const std::vector<float> usual = logits({});
      REQUIRE(asked.size() >= 5);  // products, attention
      for (size_t turn : {0, 2, 5}) {
        CAPTURE(turn);
        webgpu::Tuning tuning;
        set_unusual_ways(asked, turn, tuning);
        CHECK(test::relative_error(logits(tuning), usual) < 1e-4);  // another order of sums
      }
      // Few splits, which the product behind attention puts together.
      webgpu::Tuning tuning;
      for (const webgpu::Asked& a : asked) {
        const webgpu::Way& way = a.question.usual;
        if (a.question.key.starts_with("cached_attention")) tuning.set(a.question.key, {way[0], way[1], 2});
      }
      CHECK(test::relative_error(logits(tuning), usual) < 1e-4);
    });
  }

  TEST_CASE("turning queries is one kernel, so that a product of few rows can take it along") {
    const llm::RopeConfig rope{.dims = 8, .neighbours = true};
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const auto backend = std::make_shared<WebgpuBackend>(gpu.open());
      const Device device(backend);
      for (const int64_t tokens : {1, 3}) {
        const llm::RopeTable rows = llm::rope_table(rope, tokens, false, device);
        const Array x = ones({tokens, 2, 8}, {DType::f32, device}) + 0.0;
        eval(x);
        const uint64_t before = backend->device().counters().dispatches;
        eval(llm::rotate(x, rows));
        CHECK(backend->device().counters().dispatches - before == 1);
      }
    });
  }

  TEST_CASE("a token of a llama is 5 dispatches a layer and 3 more") {
    const test::ScopedFolder folder;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      auto backend = std::make_shared<WebgpuBackend>(gpu.open(), /*software=*/false);
      const auto dispatches = [&](int64_t layers) {
        const auto file = folder.path / "layers.gguf";
        test::write_tiny_model(file, {.layers = layers, .type = quant::Type::q8_0});
        llm::Model model(file, {.device = Device(backend), .context = 64});
        llm::Sequence sequence = model.new_sequence();
        const TokenId id = 5;
        model.run(sequence, std::span(&id, 1));
        llm::Steps steps(model);
        steps.start({{.sequence = &sequence, .position = 1, .token = id}});
        steps.run(1).ids->wait();
        const uint64_t before = backend->device().counters().dispatches;
        steps.run(1).ids->wait();
        return static_cast<int64_t>(backend->device().counters().dispatches - before);
      };
      const int64_t four = dispatches(4), layer = (four - dispatches(2)) / 2;
      // Attention in one dispatch binds 11 buffers; so does what comes before the layers.
      const bool many = backend->most_storages() >= 12;
      CHECK(layer <= (many ? 5 : 6));
      CHECK(four - 4 * layer <= (many ? 3 : 4));
    });
  }
}
