#pragma once

#include "weft/array.h"

/// Arrays made of nothing.
namespace weft {

struct ArrayOptions {
  DType dtype = DType::f32;
  Device device = {};
};

/// One value everywhere; takes no memory of its size.
Array full(const Shape& shape, double value, const ArrayOptions& options = {});
Array zeros(const Shape& shape, const ArrayOptions& options = {});
Array ones(const Shape& shape, const ArrayOptions& options = {});
Array full_like(const Array& x, double value);  ///< of x's shape, dtype and device
Array zeros_like(const Array& x);
Array ones_like(const Array& x);

Array arange(double stop, const ArrayOptions& options = {});  ///< 0, 1, ... below stop
Array arange(double start, double stop, double step = 1, const ArrayOptions& options = {});
Array linspace(double start, double stop, int64_t count,
               const Device& device = {});           ///< f32, both ends included
Array eye(int64_t rows, const Device& device = {});  ///< f32
Array eye(int64_t rows, int64_t columns, const Device& device = {});

}  // namespace weft
