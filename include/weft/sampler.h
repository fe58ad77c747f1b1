#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/text.h"

namespace weft {

/// How the next token is chosen: llama.cpp's names, meanings and defaults. The steps are done in this order,
/// each on what the one before left: bias, penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature.
struct SamplerOptions {
  float temperature = 0.8F;     ///< <= 0: the most likely token, of equal ones the lowest id
  int64_t top_k = 40;           ///< <= 0: all
  float top_p = 0.95F;          ///< the most likely tokens that have this probability together; >= 1: all
  float min_p = 0.05F;          ///< those with this share of the most likely one's probability; <= 0: all
  float typical_p = 1;          ///< as top_p, those nearest to the entropy first
  float repeat_penalty = 1;     ///< divides positive logits of tokens that were there, multiplies others
  int64_t repeat_last_n = 64;   ///< how far back penalties look; 0: off, -1: everything
  float frequency_penalty = 0;  ///< taken off a logit for each time the token was there
  float presence_penalty = 0;   ///< taken off once
  std::vector<std::pair<TokenId, float>> logit_bias = {};  ///< added to logits; -infinity bans a token

  int mirostat = 0;           ///< 2: Mirostat 2.0 in the place of top-k, typical, top-p, min-p and XTC
  float mirostat_tau = 5;     ///< the surprise to keep to, in bits
  float mirostat_eta = 0.1F;  ///< how fast to come back to it

  /// DRY: a token that would lengthen a repetition of n tokens loses multiplier * base^(n - allowed_length).
  float dry_multiplier = 0;
  float dry_base = 1.75F;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = -1;  ///< how far back it looks; 0: off, -1: everything
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};  ///< no repetition goes across one

  float xtc_probability = 0;   ///< how often all likely tokens but the least likely of them are left out
  float xtc_threshold = 0.1F;  ///< what likely means; > 0.5: off

  std::optional<uint64_t> seed = {};  ///< a random one unless it is given
  size_t min_keep = 0;                ///< typical, top-p, min-p and XTC leave at least so many tokens
};

struct TokenLogprob {
  TokenId id;
  float logprob;  ///< natural
};

}  // namespace weft
