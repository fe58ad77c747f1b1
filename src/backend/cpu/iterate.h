#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "backend/cpu/kernel.h"

/// What the primitive kernels share: walking strided tensors together, and moving runs of elements between a
/// tensor and the type it is computed in. Kernels are then written for contiguous runs of float (f32, f16,
/// bf16) and of int64_t (integers, bool) only.
namespace weft::cpu {

inline constexpr int64_t kTile = 256;  ///< elements converted, computed and stored at a time: stays in L1
inline constexpr int64_t kGrain = 1 << 15;  ///< elements worth a piece of a parallel loop, about 10 us

/// A walk over one shape in up to three tensors at once, row-major. Dims of size 1 are dropped, neighbours
/// that are evenly strided in every tensor become one, so that runs are as long as the layouts allow.
class Walk {
 public:
  static constexpr size_t kOperands = 3, kMaxRank = 64;
  using Offsets = std::array<int64_t, kOperands>;
  struct Dim {
    int64_t size = 1;
    Offsets strides{};
  };

  Walk() = default;
  /// One layout per operand; all have `shape` (or more: only its part from the start is walked).
  Walk(const Shape& shape, std::initializer_list<const Layout*> operands);

  void add(int64_t size, const Offsets& strides);  ///< the next dim, inside of those so far
  Offsets start{};                                 ///< offsets of the first element

  int64_t count() const { return count_; }
  Dim inner() const { return dims_.empty() ? Dim{} : dims_.back(); }  ///< what a run goes along
  const std::vector<Dim>& dims() const { return dims_; }

  /// Cuts elements [begin, end) into runs along the inner dim: body(position, offsets, count).
  template <typename Body>
  void runs(int64_t begin, int64_t end, Body&& body) const {
    if (begin >= end) return;
    if (dims_.empty()) return body(int64_t{0}, start, int64_t{1});
    std::array<int64_t, kMaxRank> index;
    Offsets at = start;
    int64_t rest = begin;
    for (size_t d = dims_.size(); d-- > 0;) {
      index[d] = rest % dims_[d].size;
      rest /= dims_[d].size;
      step(at, dims_[d], index[d]);
    }
    const Dim& last = dims_.back();
    int64_t column = index[dims_.size() - 1];
    for (int64_t position = begin;;) {
      const int64_t run = std::min(end - position, last.size - column);
      body(position, static_cast<const Offsets&>(at), run);
      position += run;
      if (position >= end) return;
      step(at, last, -column);
      column = 0;
      for (size_t d = dims_.size() - 1; d-- > 0;) {
        if (++index[d] < dims_[d].size) {
          step(at, dims_[d], 1);
          break;
        }
        index[d] = 0;
        step(at, dims_[d], 1 - dims_[d].size);
      }
    }
  }

 private:
  static void step(Offsets& at, const Dim& dim, int64_t by) {
    for (size_t k = 0; k < kOperands; ++k) at[k] += by * dim.strides[k];
  }

  std::vector<Dim> dims_;
  int64_t count_ = 1;
};

/// What an op along one dim sees: lines of `size` elements, and the walk over their first elements in the
/// input (operand 0) and the output (operand 1). A scalar is a line of one element.
struct Lines {
  int64_t size = 1, in_stride = 0, out_stride = 1;
  Walk rest;
};
Lines lines_along(std::string_view op, const Layout& in, const Layout& out, int64_t dim);

/// normalize_dim, where a scalar has a dim 0.
size_t dim_of(std::string_view op, int64_t dim, size_t rank);

// T is float for f32, f16 and bf16, and int64_t for the rest. Stores of integers wrap.
template <typename T>
void load_run(const Tensor& from, int64_t offset, int64_t stride, int64_t count, T* to);
template <typename T>
void store_run(const T* from, int64_t count, const Tensor& to, int64_t offset, int64_t stride);

/// The elements themselves where they lie side by side as T already, else loaded into `scratch`.
template <typename T>
const T* view_run(const Tensor& from, int64_t offset, int64_t stride, int64_t count, T* scratch) {
  constexpr DType kNative = std::is_same_v<T, float> ? DType::f32 : DType::i64;
  if (from.dtype == kNative && (stride == 1 || count == 1)) return from.as<const T>() + offset;
  load_run(from, offset, stride, count, scratch);
  return scratch;
}

/// Moves elements of 1, 2, 4 or 8 bytes; strides in elements.
void copy_run(size_t bytes, const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t count);

}  // namespace weft::cpu
