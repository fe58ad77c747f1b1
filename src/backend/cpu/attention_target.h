#pragma once

#include <cstdint>
#include <limits>

#include "backend/cpu/gemm_target.h"

/// What attention needs of the processor's vectors.
namespace weft::cpu {

/// A row's largest score so far, and the sum of exp(score - top).
struct RowSum {
  float top = -std::numeric_limits<float>::infinity(), total = 0;
};

/// Few queries over rows of a cache: a row has the columns of the key heads side by side, and each key head
/// has some queries.
struct HeadRows {
  int64_t heads, queries, columns;
  Strip rows;                       // its lanes; columns are neighbours
  int64_t count;                    // of keys, also those that a call has nothing to do with
  const int32_t* places = nullptr;  // which row each key has; null: the key's number
};

/// `bias` may be null, softcap 0.
struct AttentionTarget {
  /// Scores become exp(score - sum.top); returns what earlier results of the row have to be multiplied by.
  float (*weigh)(float* scores, const float* bias, int64_t count, float softcap, RowSum& sum);
  /// Scores become exp(score - top) * share, products (gradients of the weights) the gradients of the scores.
  void (*backward)(float* scores, float* products, const float* bias, int64_t count, float softcap, float top,
                   float share, float delta);
  void (*scale)(float* x, int64_t count, float factor);
  /// to[i] += factor * from[i].
  void (*add)(float* to, const float* from, int64_t count, float factor);
  /// scores[head][query][key - begin] = q[head][query] . rows[key][head] of keys [begin, end), which are read
  /// once, in the order in which they lie. Scores of a query begin `stride` apart.
  void (*score)(const HeadRows& keys, int64_t begin, int64_t end, const float* q, float* scores,
                int64_t stride);
  /// sums[head][query] += rows[key][head], weighted with [head][query][key - begin].
  void (*gather)(const HeadRows& values, int64_t begin, int64_t end, const float* weights, int64_t stride,
                 float* sums);
};

/// For the processor that runs this.
const AttentionTarget& attention_target();

/// What pieces of the keys gave, sums (pieces, rows, columns) and their weights, is added up in the first.
void join_pieces(int64_t pieces, int64_t rows, int64_t columns, float* sums, RowSum* weights);

}  // namespace weft::cpu
