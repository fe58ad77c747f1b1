#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "llm/candidates.h"
#include "llm/grammar/grammar.h"
#include "llm/penalties.h"
#include "weft/sampler.h"

namespace weft {

/// What a model said about a token, and its best tokens: the natural logarithms of the unmodified
/// distribution's probabilities, as OpenAI's interface reports them.
struct Logprobs {
  float chosen;
  std::vector<TokenLogprob> top;  ///< the most likely first
};
Logprobs logprobs_of(std::span<const float> logits, TokenId chosen, size_t top);

/// Chooses one token after the other. A value: a copy goes on from the same state on its own.
///
/// Random numbers are those of Threefry with the seed as the key and the number of tokens drawn as the
/// counter, so the same seed gives the same choice on every device.
///
/// With a grammar a token is drawn as without one; only when the grammar refuses it, another one is drawn
/// from the candidates that it allows. Together that is exactly the distribution of the candidates given that
/// the token is allowed, and most tokens cost one look at the grammar. Where it refuses all candidates, the
/// steps are done again with the allowed tokens only.
class Sampler {
 public:
  /// Throws ErrorKind::invalid for options that make no sense. DRY's breakers are texts: they need the
  /// tokenizer.
  explicit Sampler(SamplerOptions options, const Tokenizer* tokenizer = nullptr,
                   std::optional<GrammarState> grammar = {});

  /// A token that penalties look back at: one of the prompt. The grammar begins behind the prompt.
  void accept_prompt(TokenId id);
  /// A token that was generated.
  void accept(TokenId id);

  /// The next token. Throws ErrorKind::invalid when no token may follow, or when a logit is no number.
  TokenId sample(std::span<const float> logits);

  // For who chooses in the place of sample(): the number that draws the token after `ahead` others, and word
  // of a token that was drawn so.
  double share(uint32_t ahead) const { return draw(Draw::token, ahead); }
  void drawn() { ++drawn_; }

  /// The tokens that the last one was chosen from, with their probabilities.
  std::span<const Candidate> candidates() const { return working_.candidates.list(); }
  uint64_t seed() const { return seed_; }
  /// The grammar's text is complete: nothing but a token that ends the generation may follow.
  bool finished() const { return grammar_ && grammar_->finished(); }

 private:
  struct Settings {
    SamplerOptions options;
    DryBreakers breakers;
  };
  enum class Draw : uint32_t { token, xtc, allowed_token };

  void weigh(std::span<const float> logits);
  void narrow();
  void keep_allowed(GrammarState& grammar);
  double draw(Draw what, uint32_t ahead = 0) const;

  std::shared_ptr<const Settings> settings_;
  uint64_t seed_;
  uint32_t drawn_ = 0;
  float mirostat_mu_;  // the surprise that a token may have, in bits
  std::vector<TokenId> history_;
  std::optional<GrammarState> grammar_;

  struct Working {
    std::vector<float> logits;
    Penalties penalties;
    Candidates candidates;

    Working() = default;
    Working(const Working& /*other*/) {}  // a copy of the sampler makes its own
    Working& operator=(const Working& /*other*/) { return *this; }
  } working_;
};

}  // namespace weft
