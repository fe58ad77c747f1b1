#pragma once

#include <array>
#include <optional>

#include "weft/array.h"
#include "weft/sampler.h"

namespace weft::llm {

/// How a device chooses a token without the host: the steps of a Sampler that need nothing but logits.
struct Choice {
  int64_t top_k = 1;  ///< 1: the best; 0: all
  float top_p = 1, min_p = 0, temperature = 1;

  /// For choose(): what changes nothing in its kernels.
  static constexpr int64_t kSettings = 4;
  std::array<float, kSettings> settings() const;
};

/// The choice that these options are, where there is one.
std::optional<Choice> choice_of(const SamplerOptions& options);

/// The best token of each row of logits (n, vocabulary): i32 (n), -1 where a logit is not a number.
Array likeliest(const Array& logits);

/// The token of each row of logits (n, vocabulary) that the sampler would choose with the row's number of
/// `share` (n), 0 <= share < 1: i32 (n), -1 where a logit is not a number. `settings` (n, kSettings): each
/// row's; `top_k`: the largest of them, 0 where it is 0 for all.
Array choose(int64_t top_k, const Array& logits, const Array& share, const Array& settings);

}  // namespace weft::llm
