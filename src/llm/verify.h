#pragma once

#include <filesystem>
#include <vector>

#include "llm/model.h"

namespace weft::llm {

/// What a model should give: input_ids i32 (texts, n), logits f32 (texts, n, vocabulary), and perhaps
/// greedy_ids i32 (texts, m), the likeliest tokens that follow.
struct Expected {
  int64_t texts = 0, length = 0, vocabulary = 0;
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<int32_t> greedy;  ///< (texts, follow)
  int64_t follow = 0;
};
/// Throws ErrorKind::io for a file that is something else.
Expected load_expected(const std::filesystem::path& file);

/// What a model gives for the first `texts` windows of `length` tokens of a text.
Expected expected_of(Model& model, std::span<const TokenId> text, int64_t texts, int64_t length);

struct Comparison {
  double max = 0, mean = 0;  ///< of the absolute differences of logits
  double top1 = 1;           ///< share of places whose likeliest token is the same
  double kl = 0;             ///< mean divergence of the distributions
  bool same_greedy = true;   ///< the tokens that follow are equal, where they are expected
};
Comparison compare(Model& model, const Expected& expected);

}  // namespace weft::llm
