// Passes of many tokens, which are recorded by their shape.
#include <doctest/doctest.h>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/model.h"
#include "plan/eval.h"
#include "support/gpus.h"
#include "support/relative_error.h"
#include "support/scoped.h"
#include "support/tiny_model.h"

using namespace weft;
using llm::Model;
using llm::Sequence;

namespace {

std::vector<TokenId> text_of(size_t length, size_t seed) {
  std::vector<TokenId> list;
  for (size_t t = 0; t < length; ++t) list.push_back(static_cast<TokenId>((t * t * 7 + 31 * seed + 5) % 200));
  return list;
}

/// The logits behind a text that is read in parts that end at `ends`.
std::vector<float> logits_of(Model& model, const std::vector<TokenId>& text, std::vector<size_t> ends = {}) {
  Sequence sequence = model.new_sequence();
  std::vector<float> logits;
  size_t begin = 0;
  ends.push_back(text.size());
  for (size_t end : ends) {
    logits = model.run(sequence, std::span(text).subspan(begin, end - begin));
    begin = end;
  }
  llm::truncate(sequence, 0, model.pages());
  return logits;
}

}  // namespace

TEST_SUITE("base: passes") {
  TEST_CASE("a second prompt of the same shape builds no graph, and has results of its own") {
    const test::ScopedFolder folder;
    const std::filesystem::path file = folder.path / "tiny.gguf";
    test::write_tiny_model(file);
    Model model(file, {.context = 256}), other(file, {.context = 256});
    const std::vector<float> first = logits_of(model, text_of(40, 1));
    const EvalCounters before = eval_counters();
    const std::vector<float> second = logits_of(model, text_of(40, 2));
    const EvalCounters after = eval_counters();
    CHECK(after.plans_built == before.plans_built);
    CHECK(after.plans_reused == before.plans_reused);
    CHECK(second != first);
    CHECK(second == logits_of(other, text_of(40, 2)));
    // More shapes than are kept.
    for (size_t length : {3, 17, 70, 130, 33, 90}) logits_of(model, text_of(length, length));
    CHECK(logits_of(model, text_of(40, 1)) == first);
  }
}

TEST_SUITE("gpu passes") {
  TEST_CASE("a text read in parts gives what the CPU gives for the whole") {
    const test::ScopedFolder folder;
    const std::filesystem::path file = folder.path / "tiny.gguf";
    test::write_tiny_model(file);
    Model cpu(file, {.context = 256});
    const std::vector<TokenId> text = text_of(150, 3);
    const std::vector<float> want = logits_of(cpu, text);
    CHECK(test::relative_error(logits_of(cpu, text, {70, 71, 100}), want) < 1e-4);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      Model model(file, {.device = Device(std::make_shared<WebgpuBackend>(gpu.open())), .context = 256});
      CHECK(test::relative_error(logits_of(model, text, {70, 71, 100}), want) < 1e-4);
    });
  }
}
