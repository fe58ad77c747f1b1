#pragma once

#include "array/layout.h"

/// Layouts as ops with indices see their operands. A scalar has a dim 0.
namespace weft {

/// The same for every index along `dim`: where its first one is.
inline Layout pinned(Layout layout, size_t dim) {
  if (dim < layout.strides.size()) layout.strides[dim] = 0;
  return layout;
}

/// A list as an array that changes along `dim` only: one index per slice, seen as one per element.
inline Layout spread(const Layout& list, const Shape& to, size_t dim) {
  Layout result{to, std::vector<int64_t>(to.size(), 0), list.offset};
  if (dim < to.size() && !list.strides.empty()) result.strides[dim] = list.strides[0];
  return result;
}

}  // namespace weft
