#pragma once

#include <vector>

#include "ops/op.h"

namespace weft {

/// One dim of a slice, resolved: elements start, start + step, ..., `count` of them.
struct SliceRange {
  int64_t start, step, count;
};

/// The leading dims that a slice names.
std::vector<SliceRange> slice_ranges(const Attrs& attrs, const Shape& shape);

/// Movement ops that are written in views and kernels (moves.cpp).
std::vector<Op> moved_rows();

}  // namespace weft
