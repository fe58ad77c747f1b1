#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Sizes of the dimensions, outermost first. {} is a scalar; a 0 makes the array empty.
using Shape = std::vector<int64_t>;

int64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  ///< "(2,3)"

/// NumPy's rule. Throws `[op] shapes (2,3) and (4) do not broadcast`.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);

/// A dim counted from the end when negative. Throws with the op's name.
int64_t normalize_dim(std::string_view op, int64_t dim, size_t rank);

}  // namespace weft
