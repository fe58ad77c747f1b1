#pragma once

#include <optional>
#include <span>
#include <vector>

#include "llm/model.h"
#include "weft/llm.h"

/// Speculative decoding: several tokens are guessed and computed in one pass; the sampler then chooses each
/// as if nothing had been guessed, and what it did not choose is taken back.
namespace weft::llm {

/// What followed the last tokens of a text when they were there before: up to `most` tokens, maybe none.
std::vector<TokenId> looked_up(std::span<const TokenId> text, size_t most);

/// A smaller model of the same vocabulary that guesses how a text goes on.
class DraftModel {
 public:
  /// Throws ErrorKind::invalid for a model with another vocabulary, ErrorKind::unsupported for one that
  /// cannot go back.
  DraftModel(const std::filesystem::path& path, const LoadOptions& options, const Tokenizer& vocabulary);

  /// Its likeliest tokens behind `text`, as long as each has a probability of `p_min`.
  std::vector<TokenId> guess(std::span<const TokenId> text, size_t most, float p_min);

 private:
  Model model_;
  TokenId vocabulary_;  ///< of the model it guesses for
  Sequence sequence_;
};

/// Makes guesses as the options say.
class Drafter {
 public:
  Drafter(DraftOptions options, const LoadOptions& load, const Tokenizer& vocabulary);

  /// What may follow `text`, at most `most` tokens.
  std::vector<TokenId> guess(std::span<const TokenId> text, size_t most);
  void forget_model() { model_.reset(); }

 private:
  DraftOptions options_;
  std::optional<DraftModel> model_;
};

/// Guesses that were computed, until the sampler has chosen them or others.
class Guesses {
 public:
  /// A row of logits for the token before the guesses, and one for each of them.
  void put(std::span<const TokenId> tokens, std::vector<float> logits);
  std::vector<float> first() const { return row(0); }
  /// The row behind `id` where it is the next guess.
  std::optional<std::vector<float>> take(TokenId id);
  /// Forgets those that were not taken, and says how many.
  size_t drop();

  size_t waiting() const { return tokens_.size() - taken_; }
  /// How many to make next: few where the last ones were wrong, since each costs time.
  int64_t worth() const { return worth_; }
  int64_t made() const { return made_; }
  int64_t right() const { return right_; }

 private:
  std::vector<float> row(size_t index) const;

  std::vector<TokenId> tokens_;
  std::vector<float> logits_;  ///< (tokens + 1, vocabulary)
  size_t taken_ = 0;
  int64_t worth_ = 4, made_ = 0, right_ = 0;
};

}  // namespace weft::llm
