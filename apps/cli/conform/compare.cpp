#include "conform/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "array/element.h"
#include "base/error.h"

namespace weft::conform {
namespace {

/// "(1,2)" of element 5 of shape (2,3).
std::string index_of(size_t element, const Shape& shape) {
  Shape index(shape.size());
  auto rest = static_cast<int64_t>(element);
  for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  return to_string(index);
}

/// Infinite where no difference can be given: NaN or an infinity against something else.
double error_of(double got, double want) {
  if (std::isnan(got) && std::isnan(want)) return 0;
  if (got == want) return 0;  // infinities of the same sign too
  const double error = std::abs(got - want);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

uint64_t error_of(int64_t got, int64_t want) {
  const auto a = static_cast<uint64_t>(got), b = static_cast<uint64_t>(want);
  return got > want ? a - b : b - a;
}

double allowed(double want, double rtol, double atol) {
  if (!std::isfinite(want)) return 0;
  // Never infinite: no tolerance excuses an infinity.
  return std::min(atol + rtol * std::abs(want), std::numeric_limits<double>::max());
}
uint64_t allowed(int64_t, double, double) {
  return 0;
}

/// As Number: double or int64, whichever holds the elements exactly.
template <typename Number>
Difference compare_as(const HostTensor& got, const HostTensor& want, double rtol, double atol) {
  using Size = decltype(error_of(Number{}, Number{}));
  const auto at = [](const HostTensor& tensor, size_t i) { return number_at<Number>(tensor, i); };
  const auto count = static_cast<size_t>(element_count(want.shape));
  size_t wrong = 0, worst_at = 0;
  Size worst{};
  for (size_t i = 0; i < count; ++i) {
    const auto w = at(want, i);
    const Size error = error_of(at(got, i), w);
    if (error <= allowed(w, rtol, atol)) continue;
    if (wrong++ != 0 && error <= worst) continue;
    worst = error;
    worst_at = i;
  }
  if (wrong == 0) return {};
  const auto g = at(got, worst_at), w = at(want, worst_at);
  std::string limit;
  if constexpr (std::is_floating_point_v<Size>)
    if (std::isfinite(w)) limit = fmt::format(" (allowed {:.3g})", allowed(w, rtol, atol));
  const auto number = [](auto x) {
    if constexpr (std::is_floating_point_v<decltype(x)>)
      return fmt::format("{:.8g}", x);
    else
      return fmt::to_string(x);
  };
  return {.equal = false,
          .text = fmt::format("{} of {} elements differ, largest error {:.3g}{} at {}: got {}, want {}",
                              wrong, count, static_cast<double>(worst), limit, index_of(worst_at, want.shape),
                              number(g), number(w))};
}

}  // namespace

Difference compare(const HostTensor& got, const HostTensor& want, double rtol, double atol) {
  if (got.dtype != want.dtype)
    return {false, fmt::format("dtype is {}, want {}", name_of(got.dtype), name_of(want.dtype))};
  if (got.shape != want.shape)
    return {false, fmt::format("shape is {}, want {}", to_string(got.shape), to_string(want.shape))};
  const auto needed = static_cast<size_t>(element_count(want.shape)) * size_of(want.dtype);
  for (const HostTensor* tensor : {&got, &want})
    if (tensor->bytes.size() != needed)
      return {false, fmt::format("{} bytes do not fit shape {} of {}", tensor->bytes.size(),
                                 to_string(want.shape), name_of(want.dtype))};

  return with_element_type(want.dtype, [&]<typename T>(T) {
    using Number = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    return compare_as<Number>(got, want, rtol, atol);
  });
}

}  // namespace weft::conform
