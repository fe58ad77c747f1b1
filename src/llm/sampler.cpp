#include "llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/threefry.h"
#include "llm/logits.h"

namespace weft {
namespace {

void check(const SamplerOptions& o, const Tokenizer* tokenizer) {
  const std::pair<const char*, float> numbers[] = {{"temperature", o.temperature},
                                                   {"top_p", o.top_p},
                                                   {"min_p", o.min_p},
                                                   {"typical_p", o.typical_p},
                                                   {"repeat_penalty", o.repeat_penalty},
                                                   {"frequency_penalty", o.frequency_penalty},
                                                   {"presence_penalty", o.presence_penalty},
                                                   {"mirostat_tau", o.mirostat_tau},
                                                   {"mirostat_eta", o.mirostat_eta},
                                                   {"dry_multiplier", o.dry_multiplier},
                                                   {"dry_base", o.dry_base},
                                                   {"xtc_probability", o.xtc_probability},
                                                   {"xtc_threshold", o.xtc_threshold}};
  for (const auto& [name, value] : numbers)
    if (!std::isfinite(value)) fail(ErrorKind::invalid, "[sampler] {} is {}: not a number", name, value);
  if (o.repeat_penalty <= 0)
    fail(ErrorKind::invalid, "[sampler] repeat_penalty is {}: it must be above 0, 1 is off",
         o.repeat_penalty);
  if (o.mirostat != 0 && o.mirostat != 2)
    fail(ErrorKind::invalid, "[sampler] mirostat is {}: 0 is off, 2 is Mirostat 2.0", o.mirostat);
  for (const auto& [name, value] :
       {std::pair{"repeat_last_n", o.repeat_last_n}, {"dry_penalty_last_n", o.dry_penalty_last_n}})
    if (value < -1) fail(ErrorKind::invalid, "[sampler] {} is {}: -1 is everything, 0 is off", name, value);
  for (const auto& [id, bias] : o.logit_bias)
    if (id < 0 || std::isnan(bias))
      fail(ErrorKind::invalid, "[sampler] logit_bias of token {} is {}: not possible", id, bias);
  if (o.dry_multiplier != 0 && !o.dry_sequence_breakers.empty() && !tokenizer)
    fail(ErrorKind::invalid, "[sampler] dry_sequence_breakers need a tokenizer");
}

uint64_t random_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

Logprobs logprobs_of(std::span<const float> logits, TokenId chosen, size_t top) {
  Candidates best;
  best.start(logits, static_cast<int64_t>(std::max<size_t>(top, 1)));
  if (best.empty() || chosen < 0 || static_cast<size_t>(chosen) >= logits.size())
    fail(ErrorKind::invalid, "[logprobs] token {} of {} logits", chosen, logits.size());
  const double all = llm::log_sum_exp(logits);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - all); };

  Logprobs result{.chosen = logprob(logits[static_cast<size_t>(chosen)])};
  if (top == 0) return result;
  for (const Candidate& c : best.list()) result.top.push_back({c.id, logprob(c.logit)});
  std::ranges::stable_sort(result.top, std::greater(), &TokenLogprob::logprob);
  return result;
}

Sampler::Sampler(SamplerOptions options, const Tokenizer* tokenizer, std::optional<GrammarState> grammar)
    : seed_(options.seed ? *options.seed : random_seed()),
      mirostat_mu_(2 * options.mirostat_tau),
      grammar_(std::move(grammar)) {
  check(options, tokenizer);
  Settings settings;
  if (options.dry_multiplier != 0 && tokenizer)
    settings.breakers = DryBreakers(options.dry_sequence_breakers, *tokenizer);
  settings.options = std::move(options);
  settings_ = std::make_shared<const Settings>(std::move(settings));
}

void Sampler::accept(TokenId id) {
  if (grammar_) grammar_->accept(id);
  accept_prompt(id);
}

void Sampler::accept_prompt(TokenId id) {
  if (id < 0) fail(ErrorKind::invalid, "[sampler] {} is no token", id);
  history_.push_back(id);
}

TokenId Sampler::sample(std::span<const float> logits) {
  weigh(logits);
  narrow();
  Candidate chosen = working_.candidates.at_share(draw(Draw::token));
  if (grammar_ && !grammar_->allows(chosen.id)) {
    keep_allowed(*grammar_);
    chosen = working_.candidates.at_share(draw(Draw::allowed_token));
  }
  if (settings_->options.mirostat == 2)
    mirostat_mu_ -=
        settings_->options.mirostat_eta * (-std::log2(chosen.p) - settings_->options.mirostat_tau);
  ++drawn_;
  return chosen.id;
}

/// The logits as bias and penalties leave them.
void Sampler::weigh(std::span<const float> logits) {
  const SamplerOptions& options = settings_->options;
  std::vector<float>& weighed = working_.logits;
  weighed.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias)
    if (static_cast<size_t>(id) < weighed.size()) weighed[static_cast<size_t>(id)] += bias;
  working_.penalties.repetition(options, history_, weighed);
  working_.penalties.dry(options, settings_->breakers, history_, weighed);
  constexpr float kMost = std::numeric_limits<float>::max();  // infinities have no difference
  int others = 0;
  for (float& logit : weighed) {
    others += std::isnan(logit);
    logit = std::min(logit, kMost);
  }
  if (others > 0) fail(ErrorKind::invalid, "[sampler] the model's logits are not all numbers");
}

/// From the logits to the candidates and their probabilities.
void Sampler::narrow() {
  const SamplerOptions& options = settings_->options;
  Candidates& candidates = working_.candidates;
  const bool mirostat = options.mirostat == 2;
  const bool xtc = !mirostat && options.xtc_probability > 0 && draw(Draw::xtc) < options.xtc_probability;
  // Nothing but XTC and typical sampling takes the best token away.
  const bool best_only = options.temperature <= 0 && (mirostat || (!xtc && options.typical_p >= 1));
  const int64_t top_k = mirostat ? 0 : options.top_k;
  candidates.start(working_.logits, best_only ? 1 : top_k);
  if (candidates.empty())
    fail(ErrorKind::invalid, "[sampler] no token is left: all are banned, or refused by the grammar");
  if (!mirostat && !best_only) {
    candidates.typical(options.typical_p, options.min_keep);
    candidates.top_p(options.top_p, options.min_keep);
    candidates.min_p(options.min_p, options.min_keep);
    if (xtc) candidates.drop_top(options.xtc_threshold, options.min_keep);
  }
  candidates.temperature(options.temperature);
  if (mirostat) candidates.limit_surprise(mirostat_mu_);
  candidates.softmax();
}

void Sampler::keep_allowed(GrammarState& grammar) {
  constexpr size_t kMany = 256;  // so many looks at the grammar cost as much as the whole set of tokens
  Candidates& candidates = working_.candidates;
  if (candidates.list().size() < kMany)
    candidates.keep_if([&](const Candidate& c) { return grammar.allows(c.id); });
  else
    candidates.keep_if([mask = grammar.allowed()](const Candidate& c) { return (*mask)[c.id]; });
  if (!candidates.empty()) {
    candidates.softmax();
    return;
  }
  const std::shared_ptr<const TokenMask> mask = grammar.allowed();
  for (size_t i = 0; i < working_.logits.size(); ++i)
    if (!(*mask)[static_cast<TokenId>(i)]) working_.logits[i] = -std::numeric_limits<float>::infinity();
  narrow();
}

/// A number in [0, 1). One for each token and use: they must not depend on each other.
double Sampler::draw(Draw what, uint32_t ahead) const {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed_ >> 32), static_cast<uint32_t>(seed_)};
  return threefry(key, {static_cast<uint32_t>(what), drawn_ + ahead})[0] * 0x1p-32;
}

}  // namespace weft
