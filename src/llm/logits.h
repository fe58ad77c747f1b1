#pragma once

#include <span>

namespace weft::llm {

/// log of the sum of exp over all logits, without leaving a float's range: a logit less this is its token's
/// log probability.
double log_sum_exp(std::span<const float> logits);

}  // namespace weft::llm
