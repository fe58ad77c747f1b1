#pragma once

#include <optional>

#include "weft/array.h"
#include "weft/sampler.h"

namespace weft::llm {

/// How a device chooses a token without the host: the steps of a Sampler that need nothing but logits.
struct Choice {
  int64_t top_k = 1;  ///< 1: the best; 0: all
  float top_p = 1, min_p = 0, temperature = 1;

  /// For choose(), (3): what changes nothing in its kernels.
  std::vector<float> settings() const;
};

/// The choice that these options are, where there is one.
std::optional<Choice> choice_of(const SamplerOptions& options);

/// The best token of each row of logits (n, vocabulary): i32 (n), -1 where a logit is not a number.
Array likeliest(const Array& logits);

/// The token of logits (1, vocabulary) that the sampler would choose with the number `share` (1), 0 <= share
/// < 1: i32 (1), -1 where a logit is not a number.
Array choose(int64_t top_k, const Array& logits, const Array& share, const Array& settings);

}  // namespace weft::llm
