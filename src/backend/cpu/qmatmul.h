#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/primitives.h"
#include "quant/packing.h"

/// What qmatmul.cpp compiles once for each instruction set.
namespace weft::cpu {

// Rows of x that one task takes: their sums stay in the L1 cache while the codes of 16 rows of weights,
// unpacked into registers, meet all of them.
inline constexpr int64_t kTaskRows = 64;

/// Codes of activations: a row has for each 32 elements their codes, 32 bytes, and with 16 bits what those
/// leave in 256ths, another 32, and behind all of them these facts of each.
struct CodeFacts {
  float scale;      // of codes, or of 256ths
  int32_t sums[2];  // of the first and of the last 16 elements, in units of the scale
  float total;      // of all 32, times the scale
};
inline constexpr int64_t kFactsWords = 4;

/// y (m, n) = x w^T.
struct QuantProduct {
  quant::Packing packing;  // of w
  const uint32_t* words;   // w
  const float* x;          // (m, k), or
  const uint32_t* codes;   // (m, k / 32 * (bits + kFactsWords))
  int64_t m;
  float* y;
};

/// Rows [16 begin, 16 end) of w times rows [row, row + rows) of x.
using QuantTask = void (*)(const QuantProduct& product, int64_t begin, int64_t end, int64_t row,
                           int64_t rows);
struct QuantTasks {
  QuantTask floats, codes_8, codes_16;  // by what x is

  /// For codes of so many bits, 0: floats.
  QuantTask of(int64_t bits) const { return bits == 16 ? codes_16 : bits == 8 ? codes_8 : floats; }
};

struct QuantTarget {
  QuantTasks (*tasks)(const quant::Coding& coding);
  /// A row of x to codes of so many bits and facts.
  void (*encode)(const float* x, int64_t k, int64_t bits, uint32_t* to);
};

/// All of the products, which have equally many rows of weights of one type; x are codes of so many bits, or
/// 0: floats.
void multiply(ThreadPool& pool, std::span<const QuantProduct> products, int64_t bits);

/// The elements without gaps: in place, or copied into `copied`.
template <typename T>
const T* without_gaps(ThreadPool& pool, const Tensor& x, std::vector<T>& copied) {
  Layout layout = x.layout;
  layout.offset = 0;
  if (layout.is_contiguous()) return x.as<T>() + x.layout.offset;
  copied.resize(static_cast<size_t>(element_count(layout.shape)));
  const Tensor whole{reinterpret_cast<std::byte*>(copied.data()), x.dtype, Layout::contiguous(layout.shape)};
  copy(pool, std::span(&x, 1), std::span(&whole, 1), {});
  return copied.data();
}

}  // namespace weft::cpu
