#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/sampler.h"

namespace weft {

/// The last n of the tokens; n < 0: all of them.
std::span<const TokenId> last_tokens(std::span<const TokenId> tokens, int64_t n);

/// Where repetitions end: texts as DRY sees them, in tokens.
class DryBreakers {
 public:
  DryBreakers() = default;
  DryBreakers(std::span<const std::string> texts, const Tokenizer& tokenizer);

  /// How many tokens at the end of `tokens` are behind the last breaker; all of them where there is none.
  size_t tokens_behind(std::span<const TokenId> tokens) const;

 private:
  struct Sequence {
    TokenId head;               // its text has the breaker, or ends with the begin of it
    std::vector<TokenId> tail;  // the tokens of the rest
    auto operator<=>(const Sequence&) const = default;
  };
  std::vector<Sequence> sequences_;  // sorted
};

/// Lowers the logits of tokens that were there before. Holds working memory only.
class Penalties {
 public:
  void repetition(const SamplerOptions& options, std::span<const TokenId> history, std::span<float> logits);
  void dry(const SamplerOptions& options, const DryBreakers& breakers, std::span<const TokenId> history,
           std::span<float> logits);

 private:
  std::vector<uint32_t> of_token_;  // by id; zeros between calls
  std::vector<uint32_t> common_;    // see dry
};

}  // namespace weft
