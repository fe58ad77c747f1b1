#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_target.h"

/// What products and attention share.
namespace weft::cpu {

// Multiplications below which waking the threads costs more than it brings.
inline constexpr int64_t kParallelWork = 1 << 20;

inline constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Memory that a thread keeps for its next product.
class Scratch {
 public:
  float* floats(int64_t count) {
    if (count > size_) {
      data_.reset();  // before the new one: the peak is lower
      data_.reset(static_cast<float*>(
          ::operator new(static_cast<size_t>(count) * sizeof(float), std::align_val_t(kAlign))));
      size_ = count;
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlign = 64;
  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t(kAlign)); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

/// b as `pack_b` leaves it.
inline GemmRight packed_right(const GemmTarget& target, const float* data, int64_t depth) {
  return {data, target.tile_columns, target.tile_columns * depth};
}

inline GemmRight pack_right(const GemmTarget& target, Scratch& to, const Strip& strip, int64_t lanes,
                            int64_t depth) {
  float* out = to.floats(ceil_div(lanes, target.tile_columns) * target.tile_columns * depth);
  target.pack_b(strip, lanes, depth, out);
  return packed_right(target, out, depth);
}

inline const std::byte* element(const GemmOperand& x, int64_t row, int64_t column) {
  return x.data + (row * x.row_stride + column * x.column_stride) * static_cast<int64_t>(size_of(x.dtype));
}

}  // namespace weft::cpu
