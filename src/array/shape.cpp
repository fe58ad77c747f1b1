#include "weft/shape.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("({})", fmt::join(shape, ","));
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail(ErrorKind::invalid, "[{}] shapes {} and {} do not broadcast", op, to_string(a), to_string(b));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

int64_t normalize_dim(std::string_view op, int64_t dim, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  if (dim < -n || dim >= n)
    fail(ErrorKind::invalid, "[{}] dim {} is outside of an array of {} dims", op, dim, rank);
  return dim < 0 ? dim + n : dim;
}

}  // namespace weft
