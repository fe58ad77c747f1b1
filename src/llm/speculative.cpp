#include "llm/speculative.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "llm/sampler.h"

namespace weft::llm {
namespace {

// A repetition of one token says little about what follows; beyond four tokens hardly anything is won.
constexpr size_t kLongestMatch = 4, kShortestMatch = 2;

void check_vocabulary(const Tokenizer& draft, const Tokenizer& wanted, const std::filesystem::path& path) {
  // Models of one family fill their vocabularies up to different sizes.
  const size_t common = std::min(draft.size(), wanted.size());
  for (size_t i = 0; i < common; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (draft.spelling(id) != wanted.spelling(id))
      fail(ErrorKind::invalid, "[draft] {}: token {} is '{}', but '{}' in the model that it guesses for",
           path.string(), id, draft.spelling(id), wanted.spelling(id));
  }
}

}  // namespace

std::vector<TokenId> looked_up(std::span<const TokenId> text, size_t most) {
  for (size_t length = std::min(kLongestMatch, text.size() / 2); length >= kShortestMatch; --length) {
    const std::span<const TokenId> end = text.last(length), before = text.first(text.size() - 1);
    const auto found = std::ranges::find_end(before, end);
    if (found.empty()) continue;
    const auto follows = std::span(found.end(), text.end());
    const auto count = static_cast<int64_t>(std::min(most, follows.size()));
    return {follows.begin(), follows.begin() + count};
  }
  return {};
}

DraftModel::DraftModel(const std::filesystem::path& path, const LoadOptions& options,
                       const Tokenizer& vocabulary)
    : model_(path, options), vocabulary_(static_cast<TokenId>(vocabulary.size())) {
  if (model_.is_recurrent() || !model_.config().causal)
    fail(ErrorKind::unsupported, "[draft] {}: a model that cannot take tokens back cannot guess",
         path.string());
  check_vocabulary(Tokenizer::open(path), vocabulary, path);
}

std::vector<TokenId> DraftModel::guess(std::span<const TokenId> text, size_t most, float p_min) {
  if (text.size() + most > static_cast<size_t>(model_.context())) return {};
  if (std::ranges::max(text) >= model_.config().vocabulary) return {};
  const auto known = std::ranges::mismatch(sequence_.tokens, text).in2 - text.begin();
  // The last token is computed again where all are known: its logits are wanted.
  const auto kept = std::min(static_cast<size_t>(known), text.size() - 1);
  truncate(sequence_, kept, model_.pages());
  std::vector<float> logits = model_.run(sequence_, text.subspan(kept));
  std::vector<TokenId> result;
  while (result.size() < most) {
    const TokenLogprob best = logprobs_of(logits, 0, 1).top[0];
    if (best.logprob < std::log(p_min) || best.id >= vocabulary_) break;
    result.push_back(best.id);
    if (result.size() < most) logits = model_.run(sequence_, std::span(&result.back(), 1));
  }
  return result;
}

Drafter::Drafter(DraftOptions options, const LoadOptions& load, const Tokenizer& vocabulary)
    : options_(std::move(options)) {
  if (!options_.model.empty()) model_.emplace(options_.model, load, vocabulary);
}

std::vector<TokenId> Drafter::guess(std::span<const TokenId> text, size_t most) {
  std::vector<TokenId> result;
  if (options_.lookup) result = looked_up(text, most);
  if (result.empty() && model_) result = model_->guess(text, most, options_.p_min);
  if (std::ssize(result) < options_.min) result.clear();
  return result;
}

void Guesses::put(std::span<const TokenId> tokens, std::vector<float> logits) {
  tokens_.assign(tokens.begin(), tokens.end());
  logits_ = std::move(logits);
  taken_ = 0;
  made_ += std::ssize(tokens_);
}

std::optional<std::vector<float>> Guesses::take(TokenId id) {
  if (waiting() == 0 || tokens_[taken_] != id) return std::nullopt;
  ++right_;
  return row(++taken_);
}

size_t Guesses::drop() {
  const size_t wrong = waiting();
  if (!tokens_.empty()) worth_ = 2 * static_cast<int64_t>(taken_) + 2;
  tokens_.clear();
  taken_ = 0;
  return wrong;
}

std::vector<float> Guesses::row(size_t index) const {
  const auto width = static_cast<int64_t>(logits_.size() / (tokens_.size() + 1));
  const auto begin = logits_.begin() + static_cast<int64_t>(index) * width;
  return {begin, begin + width};
}

}  // namespace weft::llm
