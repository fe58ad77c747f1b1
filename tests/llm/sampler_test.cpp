#include "llm/sampler.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "llm/toy_vocabulary.h"
#include "support/gpus.h"
#include "text/tokenizer_json.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;

namespace {

using Ids = std::vector<TokenId>;

/// A candidate of the references: everything is sorted, and computed in double precision.
struct Entry {
  TokenId id;
  double logit;
  double p = 0;
};
using Entries = std::vector<Entry>;

void sort_and_softmax(Entries& entries) {
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  double sum = 0;
  for (Entry& e : entries) sum += e.p = std::exp(e.logit - entries[0].logit);
  for (Entry& e : entries) e.p /= sum;
}

void shrink(Entries& entries, size_t count) {
  entries.resize(std::clamp<size_t>(count, 1, entries.size()));
  sort_and_softmax(entries);
}

void reference_penalties(const SamplerOptions& o, const Ids& history, Entries& entries) {
  const size_t n = o.repeat_last_n < 0 ? history.size() : static_cast<size_t>(o.repeat_last_n);
  const Ids window(history.end() - static_cast<ptrdiff_t>(std::min(n, history.size())), history.end());
  for (Entry& e : entries) {
    const auto count = static_cast<double>(std::ranges::count(window, e.id));
    if (count == 0) continue;
    e.logit = e.logit > 0 ? e.logit / o.repeat_penalty : e.logit * o.repeat_penalty;
    e.logit -= count * o.frequency_penalty + o.presence_penalty;
  }
}

/// `breakers` are single tokens.
void reference_dry(const SamplerOptions& o, const Ids& breakers, const Ids& history, Entries& entries) {
  const size_t n = o.dry_penalty_last_n < 0 ? history.size() : static_cast<size_t>(o.dry_penalty_last_n);
  const Ids w(history.end() - static_cast<ptrdiff_t>(std::min(n, history.size())), history.end());
  for (Entry& e : entries) {
    int64_t longest = -1;
    for (size_t at = 1; at < w.size(); ++at) {  // the token was there before, behind at tokens
      if (w[at] != e.id) continue;
      int64_t length = 0;
      for (size_t i = 1; i <= at && w[at - i] == w[w.size() - i]; ++i) {
        if (std::ranges::find(breakers, w[at - i]) != breakers.end()) break;
        ++length;
      }
      longest = std::max(longest, length);
    }
    if (longest >= o.dry_allowed_length)
      e.logit -= o.dry_multiplier * std::pow(o.dry_base, longest - o.dry_allowed_length);
  }
}

void reference_typical(double p, size_t min_keep, Entries& entries) {
  double entropy = 0;
  for (const Entry& e : entries) entropy -= e.p * std::log(e.p);
  std::ranges::sort(entries, [&](const Entry& a, const Entry& b) {
    return std::abs(-std::log(a.p) - entropy) < std::abs(-std::log(b.p) - entropy);
  });
  double sum = 0;
  size_t count = 0;
  for (const Entry& e : entries) {
    sum += e.p;
    if (++count >= min_keep && sum > p) break;
  }
  shrink(entries, count);
}

void reference_top_p(double p, size_t min_keep, Entries& entries) {
  double sum = 0;
  size_t count = 0;
  for (const Entry& e : entries) {
    sum += e.p;
    if (++count >= min_keep && sum >= p) break;
  }
  shrink(entries, count);
}

void reference_min_p(double p, size_t min_keep, Entries& entries) {
  size_t count = 0;
  while (count < entries.size() && (count < min_keep || entries[count].p >= p * entries[0].p)) ++count;
  shrink(entries, count);
}

void reference_xtc(double threshold, size_t min_keep, Entries& entries) {
  size_t likely = 0;
  while (likely < entries.size() && entries[likely].p >= threshold) ++likely;
  if (likely < 2 || entries.size() - (likely - 1) < min_keep) return;
  entries.erase(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(likely - 1));
  sort_and_softmax(entries);
}

/// The whole chain but Mirostat. `xtc`: it is its turn.
Entries reference(const SamplerOptions& o, const Ids& breakers, bool xtc, const Ids& history,
                  const std::vector<float>& logits) {
  Entries entries;
  for (size_t i = 0; i < logits.size(); ++i) entries.push_back({static_cast<TokenId>(i), logits[i]});
  for (const auto& [id, bias] : o.logit_bias) entries[static_cast<size_t>(id)].logit += bias;
  reference_penalties(o, history, entries);
  if (o.dry_multiplier != 0) reference_dry(o, breakers, history, entries);
  sort_and_softmax(entries);
  if (o.top_k > 0) shrink(entries, static_cast<size_t>(o.top_k));
  if (o.typical_p < 1) reference_typical(o.typical_p, o.min_keep, entries);
  if (o.top_p < 1) reference_top_p(o.top_p, o.min_keep, entries);
  if (o.min_p > 0) reference_min_p(o.min_p, o.min_keep, entries);
  if (xtc) reference_xtc(o.xtc_threshold, o.min_keep, entries);
  if (o.temperature <= 0) shrink(entries, 1);
  if (o.temperature > 0)
    for (Entry& e : entries) e.logit /= o.temperature;
  sort_and_softmax(entries);
  return entries;
}

void check_same(std::span<const Candidate> got, Entries expected) {
  std::ranges::sort(expected, {}, &Entry::id);
  Ids got_ids, expected_ids;
  for (const Candidate& c : got) got_ids.push_back(c.id);
  for (const Entry& e : expected) expected_ids.push_back(e.id);
  REQUIRE(got_ids == expected_ids);
  for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i].p - expected[i].p) < 2e-6);
}

std::vector<float> random_logits(std::mt19937& random, size_t size, float width) {
  std::normal_distribution<float> normal(0, width);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// Tokens "a", "b", ... of one letter each.
Tokenizer letters(size_t count) {
  std::string vocabulary;
  for (size_t i = 0; i < count; ++i)
    vocabulary += fmt::format("{}\"{}\":{}", i ? "," : "", static_cast<char>('a' + i), i);
  return Tokenizer(parse_tokenizer_json(
      fmt::format(R"({{"model":{{"type":"BPE","merges":[],"vocab":{{{}}}}}}})", vocabulary), "", "test"));
}

/// Everything is off.
SamplerOptions plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1};
}

/// Pearson's statistic of drawn ids as a standard normal one (Wilson and Hilferty's cube root).
double deviation(const std::map<TokenId, int>& counts, const Entries& expected, int draws) {
  double statistic = 0;
  size_t classes = 0;
  double rest = draws, rest_expected = draws;
  for (const Entry& e : expected) {
    const double mean = e.p * draws;
    if (mean < 10) continue;  // those are one class together
    const auto found = counts.find(e.id);
    const double count = found == counts.end() ? 0 : found->second;
    statistic += (count - mean) * (count - mean) / mean;
    rest -= count;
    rest_expected -= mean;
    ++classes;
  }
  if (rest_expected > 10) {
    statistic += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
    ++classes;
  }
  const double freedom = static_cast<double>(classes) - 1;
  const double width = 2 / (9 * freedom);
  return freedom < 1 ? 0 : (std::cbrt(statistic / freedom) - (1 - width)) / std::sqrt(width);
}

}  // namespace

TEST_SUITE_BEGIN("base: sampler");

TEST_CASE("each sampler is its definition") {
  std::mt19937 random(1);
  struct Row {
    const char* name;
    SamplerOptions options;
  };
  std::vector<Row> rows;
  const auto add = [&](const char* name, auto change) {
    SamplerOptions options = plain();
    change(options);
    rows.push_back({name, options});
  };
  add("nothing", [](SamplerOptions&) {});
  for (int64_t k : {1, 2, 40, 5000}) add("top_k", [&](SamplerOptions& o) { o.top_k = k; });
  for (float p : {0.F, 0.1F, 0.5F, 0.9F, 0.999F}) {
    add("top_p", [&](SamplerOptions& o) { o.top_p = p; });
    add("min_p", [&](SamplerOptions& o) { o.min_p = p; });
    add("typical_p", [&](SamplerOptions& o) { o.typical_p = p; });
    add("xtc", [&](SamplerOptions& o) { o.xtc_probability = 1, o.xtc_threshold = p / 4; });
    for (size_t keep : {1, 3, 70}) {
      add("top_p", [&](SamplerOptions& o) { o.top_p = p, o.min_keep = keep; });
      add("min_p", [&](SamplerOptions& o) { o.min_p = p, o.min_keep = keep; });
      add("typical_p", [&](SamplerOptions& o) { o.typical_p = p, o.min_keep = keep; });
      add("xtc",
          [&](SamplerOptions& o) { o.xtc_probability = 1, o.xtc_threshold = p / 4, o.min_keep = keep; });
    }
  }
  for (float t : {-1.F, 0.F, 0.1F, 0.8F, 2.F})
    add("temperature", [&](SamplerOptions& o) { o.temperature = t; });
  add("bias", [](SamplerOptions& o) { o.logit_bias = {{0, 5.F}, {3, -2.5F}, {0, 1.F}}; });
  add("the defaults", [](SamplerOptions& o) { o = {.seed = 1}; });
  add("all", [](SamplerOptions& o) {
    o = {.typical_p = 0.9F, .xtc_probability = 1, .xtc_threshold = 0.05F, .seed = 1, .min_keep = 2};
  });
  for (const Row& row : rows)
    for (size_t size : {1, 2, 7, 100, 3000})
      for (float width : {0.1F, 1.F, 4.F}) {
        CAPTURE(row.name);
        CAPTURE(size);
        CAPTURE(width);
        SamplerOptions options = row.options;
        std::erase_if(options.logit_bias,
                      [&](const auto& bias) { return static_cast<size_t>(bias.first) >= size; });
        const std::vector<float> logits = random_logits(random, size, width);
        Sampler sampler(options);
        sampler.sample(logits);
        check_same(sampler.candidates(), reference(options, {}, options.xtc_probability == 1, {}, logits));
      }
}

TEST_CASE("penalties are their definitions") {
  std::mt19937 random(2);
  const Tokenizer tokenizer = letters(26);
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    const auto pick = [&](auto... values) {
      const std::common_type_t<decltype(values)...> all[] = {values...};
      return all[random() % sizeof...(values)];
    };
    SamplerOptions options = plain();
    options.repeat_penalty = pick(1.F, 1.1F, 1.5F, 0.5F);
    options.frequency_penalty = pick(0.F, 0.5F, -0.25F);
    options.presence_penalty = pick(0.F, 0.5F);
    options.repeat_last_n = pick(-1, 0, 1, 5, 64);
    options.dry_multiplier = pick(0.F, 0.8F);
    options.dry_base = pick(1.F, 1.75F, 3.F);
    options.dry_allowed_length = pick(0, 1, 2, 5);
    options.dry_penalty_last_n = pick(-1, 0, 3, 20);
    options.dry_sequence_breakers = {"d", "", "f"};
    const Ids breakers = {3, 5};
    Sampler sampler(options, &tokenizer);
    Ids history(random() % 60);
    const unsigned letters_used = pick(1U, 2U, 4U, 26U);
    for (TokenId& id : history) id = static_cast<TokenId>(random() % letters_used);
    if (random() % 4 == 0) history.assign(40, 1);
    for (TokenId id : history) sampler.accept(id);
    const std::vector<float> logits = random_logits(random, 26, 2);
    const Sampler copy = sampler;
    sampler.sample(logits);
    check_same(sampler.candidates(), reference(options, breakers, false, history, logits));
    Sampler again = copy;
    again.sample(logits);
    check_same(again.candidates(), reference(options, breakers, false, history, logits));
  }
}

TEST_CASE("a breaker of several tokens") {
  const Tokenizer tokenizer = letters(26);
  const DryBreakers breakers(std::vector<std::string>{"cab", "z"}, tokenizer);
  const auto behind = [&](const std::string& text) { return breakers.tokens_behind(tokenizer.encode(text)); };
  CHECK(behind("abcde") == 5);
  CHECK(behind("ecabde") == 2);
  CHECK(behind("ecab") == 0);
  CHECK(behind("eca") == 3);
  CHECK(behind("zca") == 2);
  CHECK(behind("cabzee") == 2);
  CHECK(behind("") == 0);
}

TEST_CASE("a repetition of thousands of tokens has a finite penalty") {
  const Tokenizer tokenizer = letters(3);
  SamplerOptions options = plain();
  options.dry_multiplier = 0.8F;
  Sampler sampler(options, &tokenizer);
  for (int i = 0; i < 20000; ++i) sampler.accept(1);
  CHECK(sampler.sample(std::vector<float>{0, 100, -100}) == 0);
}

TEST_CASE("greedy: the most likely, of equal ones the lowest id") {
  SamplerOptions options = plain();
  options.temperature = 0;
  Sampler sampler(options);
  CHECK(sampler.sample(std::vector<float>{1, 3, 2, 3, 3}) == 1);
  CHECK(sampler.sample(std::vector<float>(5000, -1)) == 0);
  const float never = -std::numeric_limits<float>::infinity();
  CHECK(sampler.sample(std::vector<float>{never, never, -1e30F}) == 2);
  CHECK(sampler.sample(std::vector<float>{0, -never, -never}) == 1);
  options.top_k = 3;
  options.temperature = 1e-30F;
  CHECK(Sampler(options).sample(std::vector<float>{1, 3, 2, 3.1F, 3}) == 3);
  Sampler equal(options);
  equal.sample(std::vector<float>(300, 2));
  CHECK(equal.candidates().size() == 3);
  CHECK(equal.candidates().back().id == 2);
}

TEST_CASE("drawn tokens have their probabilities") {
  std::mt19937 random(3);
  constexpr int kDraws = 20000;
  std::vector<SamplerOptions> all;
  all.push_back(plain());
  all.push_back({.seed = 5});
  all.push_back({.temperature = 1.5F, .top_k = 20, .top_p = 0.8F, .min_p = 0, .seed = 6});
  all.push_back({.temperature = 0.7F, .top_k = 0, .top_p = 0.9F, .typical_p = 0.8F, .seed = 7});
  all.push_back({.temperature = 3, .top_k = 0, .top_p = 1, .min_p = 0.02F, .seed = 0xFFFFFFFFFFFFFFFF});
  for (const SamplerOptions& options : all)
    for (float width : {0.5F, 2.F}) {
      const std::vector<float> logits = random_logits(random, 60, width);
      Sampler sampler(options);
      std::map<TokenId, int> counts;
      for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
      CHECK(std::abs(deviation(counts, reference(options, {}, false, {}, logits), kDraws)) < 4);
    }
}

TEST_CASE("XTC has its turn with its probability, and does not depend on what is drawn") {
  std::mt19937 random(4);
  const std::vector<float> logits = random_logits(random, 10, 1);
  SamplerOptions options = plain();
  options.xtc_probability = 0.3F;
  Sampler sampler(options);
  constexpr int kDraws = 20000;
  std::map<TokenId, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
  Entries expected = reference(options, {}, false, {}, logits);
  const Entries dropped = reference(options, {}, true, {}, logits);
  REQUIRE(dropped.size() < expected.size());
  for (Entry& e : expected) {
    const auto found = std::ranges::find(dropped, e.id, &Entry::id);
    e.p = 0.7 * e.p + (found == dropped.end() ? 0 : 0.3 * found->p);
  }
  CHECK(std::abs(deviation(counts, expected, kDraws)) < 4);
}

TEST_CASE("Mirostat 2.0 is its definition") {
  std::mt19937 random(5);
  SamplerOptions options{
      .temperature = 0.9F, .mirostat = 2, .mirostat_tau = 3, .mirostat_eta = 0.2F, .seed = 8};
  Sampler sampler(options);
  double mu = 6, mean = 0;
  for (int i = 0; i < 500; ++i) {
    const std::vector<float> logits = random_logits(random, 500, 3);
    const TokenId id = sampler.sample(logits);
    Entries entries;
    for (size_t k = 0; k < logits.size(); ++k) entries.push_back({static_cast<TokenId>(k), logits[k] / 0.9});
    sort_and_softmax(entries);
    size_t count = 0;
    while (count < entries.size() && -std::log2(entries[count].p) <= mu) ++count;
    shrink(entries, count);
    check_same(sampler.candidates(), entries);
    const double surprise = -std::log2(std::ranges::find(entries, id, &Entry::id)->p);
    mu -= 0.2 * (surprise - 3);
    mean += surprise / 500;
  }
  CHECK(std::abs(mean - 3) < 0.2);
}

TEST_CASE("a seed is a text, and a copy goes on alike") {
  std::mt19937 random(6);
  const std::vector<float> logits = random_logits(random, 1000, 2);
  const auto draw = [&](Sampler& sampler, int count) {
    Ids ids;
    for (int i = 0; i < count; ++i) {
      ids.push_back(sampler.sample(logits));
      sampler.accept(ids.back());
    }
    return ids;
  };
  for (int mirostat : {0, 2}) {
    const SamplerOptions options{.top_k = 0, .repeat_penalty = 1.2F, .mirostat = mirostat, .seed = 9};
    Sampler a(options), b(options);
    CHECK(draw(a, 30) == draw(b, 30));
    Sampler copy = a;
    CHECK(draw(a, 30) == draw(copy, 30));
    SamplerOptions other = options;
    other.seed = 10;
    Sampler c(other), d(options);
    CHECK(draw(c, 30) != draw(d, 30));
  }
  // Without a seed they differ, and say which one they took.
  Sampler a{SamplerOptions{.top_k = 0}};
  Sampler b{SamplerOptions{.top_k = 0}};
  CHECK(a.seed() != b.seed());
  Sampler again{SamplerOptions{.top_k = 0, .seed = a.seed()}};
  CHECK(draw(a, 30) == draw(again, 30));
}

TEST_CASE("logprobs are those of the unmodified distribution") {
  std::mt19937 random(7);
  for (size_t size : {1, 5, 300, 4000}) {
    const std::vector<float> logits = random_logits(random, size, 3);
    Entries entries;
    for (size_t i = 0; i < size; ++i) entries.push_back({static_cast<TokenId>(i), logits[i]});
    sort_and_softmax(entries);
    for (size_t top : {0, 1, 5, 20}) {
      const Logprobs got = logprobs_of(logits, entries.back().id, top);
      CHECK(got.chosen == doctest::Approx(std::log(entries.back().p)));
      REQUIRE(got.top.size() == std::min(top, size));
      for (size_t i = 0; i < got.top.size(); ++i) {
        CHECK(got.top[i].id == entries[i].id);
        CHECK(got.top[i].logprob == doctest::Approx(std::log(entries[i].p)));
      }
    }
  }
  CHECK(error_of([] { logprobs_of(std::vector<float>{1, 2}, 2, 1); }).message ==
        "[logprobs] token 2 of 2 logits");
}

TEST_CASE("with a grammar: the distribution of the candidates that it allows") {
  std::mt19937 random(8);
  const auto tokens = std::make_shared<const TokenTrie>(test::toy_tokenizer({}));
  const GrammarState grammar(Grammar("root ::= [a-fA-F0-9]+ [xyz]*"), tokens);
  constexpr int kDraws = 20000;
  for (SamplerOptions options :
       {plain(), SamplerOptions{.temperature = 1.2F, .top_p = 0.9F, .seed = 3},
        SamplerOptions{.top_k = 3, .seed = 4}, SamplerOptions{.temperature = 0, .seed = 5},
        SamplerOptions{.top_k = 0, .top_p = 0.5F, .xtc_probability = 1, .seed = 6}}) {
    const std::vector<float> logits = random_logits(random, 300, 1);  // more than there are tokens
    Sampler sampler(options, nullptr, grammar);
    std::map<TokenId, int> counts;
    for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits)];
    const auto allowed = [](TokenId id) { return id < 256 && std::isxdigit(id); };
    Entries expected = reference(options, {}, options.xtc_probability == 1, {}, logits);
    std::erase_if(expected, [&](const Entry& e) { return !allowed(e.id); });
    if (expected.empty()) {
      std::vector<float> masked = logits;
      for (TokenId id = 0; id < 300; ++id)
        if (!allowed(id)) masked[static_cast<size_t>(id)] = -1e30F;
      expected = reference(options, {}, options.xtc_probability == 1, {}, masked);
    } else {
      sort_and_softmax(expected);
    }
    for (const auto& [id, count] : counts) CHECK(allowed(id));
    CHECK(std::abs(deviation(counts, expected, kDraws)) < 4);
  }
}

TEST_CASE("what is generated follows the grammar, the prompt does not") {
  std::mt19937 random(9);
  const auto tokens = std::make_shared<const TokenTrie>(test::toy_tokenizer({"12", "]]"}));
  const TokenId end = tokens->ends().front();
  const GrammarState grammar(Grammar(R"(root ::= "[" (root | [0-9]{1,3})? "]")"), tokens);
  for (int round = 0; round < 50; ++round) {
    Sampler sampler({.seed = static_cast<uint64_t>(round)}, nullptr, grammar);
    for (char c : std::string("prompt")) sampler.accept_prompt(c);
    std::string text;
    for (int i = 0; i < 200; ++i) {
      std::vector<float> logits = random_logits(random, tokens->size(), 2);
      if (i > 100) logits[']'] += 20;
      const TokenId id = sampler.sample(logits);
      CHECK(sampler.finished() == (id == end));
      sampler.accept(id);
      if (id == end) break;
      text += tokens->bytes(id);
    }
    CAPTURE(text);
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto open = static_cast<size_t>(std::ranges::count(text, '['));
    const auto digits = static_cast<size_t>(std::ranges::count_if(text, digit));
    CHECK(open > 0);
    CHECK(digits <= 3);
    REQUIRE(text.size() == 2 * open + digits);
    CHECK(text.substr(0, open) == std::string(open, '['));
    CHECK(text.substr(open + digits) == std::string(open, ']'));
    CHECK(error_of([&] { sampler.accept('1'); }).message.find("not allowed") != std::string::npos);
    CHECK(error_of([&] { sampler.sample(std::vector<float>(10)); }).message.find("no token") !=
          std::string::npos);
  }
}

TEST_CASE("numbers beyond their ranges are llama.cpp's: off, or the best token") {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> logits = random_logits(random, 50, 3);
    const auto candidates = [&](const SamplerOptions& options) {
      Sampler sampler(options);
      sampler.sample(logits);
      return sampler.candidates().size();
    };
    const SamplerOptions all{.top_k = 0, .top_p = 1, .min_p = 0, .seed = 1};
    const auto with = [&](auto change) {
      SamplerOptions options = all;
      change(options);
      return candidates(options);
    };
    for (const float off : {1.0F, 1.5F, 9.0F}) {
      CHECK(with([&](SamplerOptions& o) { o.top_p = off; }) == 50);
      CHECK(with([&](SamplerOptions& o) { o.typical_p = off; }) == 50);
      CHECK(with([&](SamplerOptions& o) { o.min_p = off; }) == 1);
      CHECK(with([&](SamplerOptions& o) { o.xtc_probability = 1, o.xtc_threshold = off; }) == 50);
    }
    for (const float off : {0.0F, -1.0F}) {
      CHECK(with([&](SamplerOptions& o) { o.top_p = off; }) == 1);
      CHECK(with([&](SamplerOptions& o) { o.typical_p = off; }) == 1);
      CHECK(with([&](SamplerOptions& o) { o.min_p = off; }) == 50);
      CHECK(with([&](SamplerOptions& o) { o.xtc_probability = off; }) == 50);
      CHECK(with([&](SamplerOptions& o) { o.xtc_probability = 1, o.xtc_threshold = off; }) == 1);
    }
  }
}

TEST_CASE("options and logits that make no sense") {
  const auto error = [](auto change) {
    SamplerOptions options;
    change(options);
    return error_of([&] { Sampler sampler(options); }).message;
  };
  const float nan = std::nanf("");
  CHECK(error([&](SamplerOptions& o) { o.top_p = nan; }) == "[sampler] top_p is nan: not a number");
  CHECK(error([](SamplerOptions& o) { o.repeat_penalty = 0; }).find("repeat_penalty") != std::string::npos);
  for (int mirostat : {-1, 1, 7})
    CHECK(error_of([&] { Sampler sampler({.mirostat = mirostat}); }).kind == "invalid");
  CHECK(error([](SamplerOptions& o) { o.mirostat = 1; }).find("mirostat") != std::string::npos);
  CHECK(error([](SamplerOptions& o) { o.repeat_last_n = -2; }).find("repeat_last_n") != std::string::npos);
  CHECK(error([](SamplerOptions& o) { o.dry_penalty_last_n = -9; }).find("dry_penalty_last_n") !=
        std::string::npos);
  CHECK(error([](SamplerOptions& o) { o.logit_bias = {{-1, 0.F}}; }).find("logit_bias") != std::string::npos);
  CHECK(error([](SamplerOptions& o) { o.dry_multiplier = 1; }).find("tokenizer") != std::string::npos);
  Sampler sampler(SamplerOptions{});
  const float never = -std::numeric_limits<float>::infinity();
  CHECK(error_of([&] { sampler.sample(std::vector<float>{never, never}); }).message.find("no token") !=
        std::string::npos);
  CHECK(error_of([&] { sampler.sample({}); }).message.find("no token") != std::string::npos);
  CHECK(error_of([&] { sampler.sample(std::vector<float>{1, nan}); }).message.find("numbers") !=
        std::string::npos);
  CHECK(error_of([&] { sampler.accept(-1); }).message.find("no token") != std::string::npos);
}

TEST_SUITE_END();
