#pragma once

#include <cstdint>

#include "quant/packing.h"

/// What qmatmul.cpp compiles once for each instruction set.
namespace weft::cpu {

// Rows of x that one task takes: their sums stay in the L1 cache while the codes of 16 rows of weights,
// unpacked into registers, meet all of them.
inline constexpr int64_t kTaskRows = 64;

/// Activations of 8 bits: a row has k codes, then the facts of each 32 of them.
struct ByteFacts {
  float scale;
  float scaled_sums[2];  // scale times the sums of the first and of the last 16 codes
  int16_t sums[2];
};
inline constexpr int64_t kByteBlockWords = 12;

/// y (m, n) = x w^T.
struct QuantProduct {
  quant::Packing packing;  // of w
  const uint32_t* words;   // w
  const float* x;          // (m, k), or
  const uint32_t* bytes;   // (m, k / 32 * kByteBlockWords)
  int64_t m;
  float* y;
};

struct QuantTarget {
  /// Rows [16 begin, 16 end) of w times rows [row, row + rows) of x.
  using Task = void (*)(const QuantProduct& product, int64_t begin, int64_t end, int64_t row, int64_t rows);
  Task (*floats)(const quant::Coding& coding);
  Task (*bytes)(const quant::Coding& coding);
  /// A row of x to codes and scales.
  void (*quantize)(const float* x, int64_t k, uint32_t* to);
};

}  // namespace weft::cpu
