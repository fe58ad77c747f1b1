#pragma once

#include <cstdint>
#include <limits>

/// What attention needs of the processor's vectors, for a row of scores.
namespace weft::cpu {

/// A row's largest score so far, and the sum of exp(score - top).
struct RowSum {
  float top = -std::numeric_limits<float>::infinity(), total = 0;
};

/// `bias` may be null, softcap 0.
struct AttentionTarget {
  /// Scores become exp(score - sum.top); returns what earlier results of the row have to be multiplied by.
  float (*weigh)(float* scores, const float* bias, int64_t count, float softcap, RowSum& sum);
  /// Scores become exp(score - lse), products (gradients of the weights) the gradients of the scores.
  void (*backward)(float* scores, float* products, const float* bias, int64_t count, float softcap, float lse,
                   float delta);
  void (*scale)(float* x, int64_t count, float factor);
};

/// For the processor that runs this.
const AttentionTarget& attention_target();

}  // namespace weft::cpu
