// Sequences that are computed together.
#include <doctest/doctest.h>

#include "backend/webgpu/webgpu_backend.h"
#include "llm/model.h"
#include "support/gpus.h"
#include "support/relative_error.h"
#include "support/scoped.h"
#include "support/tiny_model.h"

using namespace weft;
using llm::Model;
using llm::Sequence;
using llm::Turn;

namespace {

/// Prompts of different lengths, on both sides of a page and of a step of keys, and how each goes on.
struct Texts {
  static constexpr size_t kMore = 4;
  std::vector<std::vector<TokenId>> prompts, more;

  explicit Texts(size_t count, TokenId vocabulary) {
    constexpr size_t kLengths[] = {1, 31, 33, 5, 63, 64, 2};
    for (size_t i = 0; i < count; ++i) {
      const auto ids = [&](size_t length, size_t seed) {
        std::vector<TokenId> list;
        for (size_t t = 0; t < length; ++t)
          list.push_back(static_cast<TokenId>((t * t * 7 + 31 * seed + 5) % static_cast<size_t>(vocabulary)));
        return list;
      };
      prompts.push_back(ids(kLengths[i % std::size(kLengths)], i));
      more.push_back(ids(kMore, 100 + i));
    }
  }
};

/// The logits behind the last token of each.
std::vector<std::vector<float>> alone(Model& model, const Texts& texts) {
  std::vector<std::vector<float>> logits;
  for (size_t i = 0; i < texts.prompts.size(); ++i) {
    Sequence sequence = model.new_sequence();
    model.run(sequence, texts.prompts[i]);
    logits.push_back(model.run(sequence, texts.more[i]));
    llm::truncate(sequence, 0, model.pages());
  }
  return logits;
}

/// The prompts in one pass, then a token of each in every pass.
std::vector<std::vector<float>> together(Model& model, const Texts& texts) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < texts.prompts.size(); ++i)
    sequences.push_back(model.new_sequence(static_cast<int32_t>(i)));
  std::vector<Turn> turns;
  for (size_t i = 0; i < sequences.size(); ++i) turns.push_back({sequences[i], texts.prompts[i]});
  std::vector<float> rows = model.run(turns);
  for (size_t t = 0; t < Texts::kMore; ++t) {
    std::vector<Turn> next;
    for (size_t i = 0; i < sequences.size(); ++i)
      next.push_back({sequences[i], std::span(texts.more[i]).subspan(t, 1)});
    rows = model.run(next);
  }
  const auto width = static_cast<ptrdiff_t>(model.config().vocabulary);
  std::vector<std::vector<float>> logits;
  for (auto row = rows.begin(); row != rows.end(); row += width) logits.emplace_back(row, row + width);
  for (Sequence& sequence : sequences) llm::truncate(sequence, 0, model.pages());
  return logits;
}

void check_all(Model& model, size_t count, double bound) {
  const Texts texts(count, static_cast<TokenId>(model.config().vocabulary));
  const std::vector<std::vector<float>> want = alone(model, texts), got = together(model, texts);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(test::relative_error(got[i], want[i]) < bound);
  }
}

struct Place {
  test::ScopedFolder folder;
  std::filesystem::path file = folder.path / "tiny.gguf";
};

}  // namespace

TEST_SUITE("base: batches") {
  TEST_CASE("sequences together give the logits that each gives alone") {
    const Place place;
    for (const quant::Type type : {quant::Type::f32, quant::Type::q4_0}) {
      CAPTURE(quant::traits(type).name);
      test::write_tiny_model(place.file, {.type = type});
      Model model(place.file, {.context = 128, .sequences = 9});
      for (size_t count : {1, 2, 3, 9}) {
        CAPTURE(count);
        check_all(model, count, 1e-4);
      }
      CHECK(model.pages().left() == 9 * 128 / llm::kPageRows);
    }
  }

  TEST_CASE("architectures with windows, experts, states and latent keys") {
    for (const char* name : {"gemma3", "mixtral", "qwen3next", "deepseek2", "lfm2", "gptoss"}) {
      CAPTURE(name);
      Model model(std::filesystem::path(WEFT_SOURCE_DIR "/tests/data/architectures") / name,
                  {.context = 128, .sequences = 5});
      check_all(model, 5, 1e-3);
    }
  }

  TEST_CASE("a text that grows across the border of longrope is computed again, among others") {
    Model model(WEFT_SOURCE_DIR "/tests/data/architectures/phi3-border", {.sequences = 3});
    const int64_t border = model.config().rope_border();
    REQUIRE(border < model.context());
    const auto text = [&](int64_t length) { return std::vector<TokenId>(static_cast<size_t>(length), 3); };
    const auto run = [&](bool as_one) {
      std::vector<std::vector<float>> logits(3);
      std::vector<Sequence> sequences(3);
      const TokenId id = 5;
      std::vector<Turn> turns;
      for (int64_t i = 0; i < 3; ++i) {
        Sequence& sequence = sequences[static_cast<size_t>(i)];
        model.run(sequence, text(border - 1 + i));  // the second one crosses, the third one did before
        turns.push_back({sequence, std::span(&id, 1)});
        if (!as_one) logits[static_cast<size_t>(i)] = model.run(sequence, std::span(&id, 1));
      }
      if (as_one) {
        const std::vector<float> rows = model.run(turns);
        for (size_t i = 0; i < 3; ++i)
          logits[i].assign(rows.begin() + static_cast<ptrdiff_t>(i) * model.config().vocabulary,
                           rows.begin() + static_cast<ptrdiff_t>(i + 1) * model.config().vocabulary);
      }
      for (Sequence& sequence : sequences) llm::truncate(sequence, 0, model.pages());
      return logits;
    };
    const std::vector<std::vector<float>> want = run(false), got = run(true);
    for (size_t i = 0; i < 3; ++i) CHECK(test::relative_error(got[i], want[i]) < 1e-3);
  }

  TEST_CASE("steps make do with the pages that are there") {
    const Place place;
    test::write_tiny_model(place.file);
    Model model(place.file, {.context = 64, .sequences = 2, .cached_tokens = 2 * llm::kPageRows});
    std::vector<Sequence> sequences(2);
    const TokenId id = 5;
    const std::vector<Turn> turns = {{sequences[0], std::span(&id, 1)}, {sequences[1], std::span(&id, 1)}};
    for (int64_t i = 0; i < llm::kPageRows; ++i) model.run(turns);
    CHECK(sequences[0].pages.size() == 1);
    CHECK(test::error_of([&] { model.run(turns); }).message == "[cache] 2 pages are needed, and 0 are left");
  }

  TEST_CASE("what cannot be is refused, and leaves the sequences as they were") {
    const Place place;
    test::write_tiny_model(place.file);
    Model model(place.file, {.context = 64, .sequences = 2, .cached_tokens = 64});
    Sequence a = model.new_sequence(0), b = model.new_sequence(1);
    const std::vector<TokenId> text(40, 1), none, wrong = {-1};
    const auto kind = [&](const std::vector<TokenId>& first, const std::vector<TokenId>& second) {
      const std::vector<Turn> turns = {{a, first}, {b, second}};
      return test::error_of([&] { model.run(turns); }).kind;
    };
    CHECK(kind(text, text) == "memory");
    CHECK(kind(text, wrong) == "invalid");
    CHECK(kind(text, none) == "invalid");
    CHECK(a.tokens.empty());
    CHECK(model.pages().left() == 2);
  }
}

TEST_SUITE("gpu batches") {
  TEST_CASE("sequences together give the CPU's logits") {
    const Place place;
    test::write_tiny_model(place.file, {.width = 64, .hidden = 64, .type = quant::Type::q4_0});
    const llm::LoadOptions options{.context = 128, .sequences = 5};
    Model cpu(place.file, options);
    const Texts texts(5, static_cast<TokenId>(cpu.config().vocabulary));
    const std::vector<std::vector<float>> want = alone(cpu, texts);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      llm::LoadOptions on_gpu = options;
      on_gpu.device = Device(std::make_shared<WebgpuBackend>(gpu.open()));
      Model model(place.file, on_gpu);
      const std::vector<std::vector<float>> got = together(model, texts);
      for (size_t i = 0; i < got.size(); ++i) CHECK(test::relative_error(got[i], want[i]) < 0.01);
    });
  }
}
