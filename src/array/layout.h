#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/shape.h"

namespace weft {

/// Where the elements of an array are in its storage: element i0,i1,... is at offset + sum(i * strides),
/// counted in elements. Strides may be 0 (expand) or negative (flip). Views change the layout and never touch
/// the storage.
struct Layout {
  Shape shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;

  static Layout contiguous(const Shape& shape);
  bool is_contiguous() const;  ///< row-major without gaps, from offset 0

  Layout permuted(const std::vector<int64_t>& dims) const;
  Layout expanded(const Shape& to) const;
  /// start and step per dim; the new shape is given. A step may be negative.
  Layout sliced(const std::vector<int64_t>& starts, const std::vector<int64_t>& steps, const Shape& to) const;
  /// nullopt when the elements would have to move.
  std::optional<Layout> reshaped(const Shape& to) const;
};

bool operator==(const Layout& a, const Layout& b);

}  // namespace weft
