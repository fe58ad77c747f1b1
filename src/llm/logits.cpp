#include "llm/logits.h"

#include <algorithm>
#include <cmath>

namespace weft::llm {

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

}  // namespace weft::llm
