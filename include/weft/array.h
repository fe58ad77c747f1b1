#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/shape.h"

namespace weft {

struct HostTensor;
struct Node;

/// An n-dimensional array: a value handle on an immutable node of a lazy graph. Nothing is computed before
/// eval(), to_host() or a conversion to a vector asks for it.
class Array {
 public:
  Array() = default;  ///< no array: an input that is left out

  static Array from_host(const HostTensor& values, const Device& device = {});
  /// Row-major values of the dtype that belongs to T.
  template <Element T>
  static Array from_span(std::span<const T> values, const Shape& shape, const Device& device = {}) {
    return from_bytes(dtype_of<T>(), std::as_bytes(values), shape, device);
  }
  template <Element T>
  static Array from_vector(const std::vector<T>& values, const Shape& shape, const Device& device = {}) {
    if constexpr (std::is_same_v<T, bool>) {  // whose vector is not made of bools
      const std::vector<uint8_t> bytes(values.begin(), values.end());
      return from_bytes(DType::boolean, std::as_bytes(std::span(bytes)), shape, device);
    } else {
      return from_span(std::span(values), shape, device);
    }
  }
  static Array from_vector(const std::vector<float>& values, const Shape& shape, const Device& device = {}) {
    return from_span(std::span(values), shape, device);
  }

  const Shape& shape() const;
  int64_t shape(int64_t dim) const;  ///< negative from the end
  size_t ndim() const { return shape().size(); }
  int64_t size() const { return element_count(shape()); }
  DType dtype() const;
  const Device& device() const;

  HostTensor to_host() const;  ///< evaluates
  /// Evaluates. T has to hold every value of the dtype: float holds f16 and u8, but not i32.
  template <Element T = float>
  std::vector<T> to_vector() const;
  template <Element T = float>
  T item() const;  ///< the value of an array of one element

  explicit operator bool() const { return node_ != nullptr; }

  /// For the layers that make and walk graphs.
  Array(std::shared_ptr<Node> node, size_t output) : node_(std::move(node)), output_(output) {}
  const std::shared_ptr<Node>& node() const { return node_; }
  size_t output() const { return output_; }

 private:
  static Array from_bytes(DType dtype, std::span<const std::byte> bytes, const Shape& shape,
                          const Device& device);

  std::shared_ptr<Node> node_;
  size_t output_ = 0;
};

/// Computes these arrays, together: one schedule.
void eval(std::span<const Array> arrays);
inline void eval(const Array& array) {
  eval(std::span(&array, 1));
}

Array operator+(const Array& a, const Array& b);
Array operator-(const Array& a, const Array& b);
Array operator*(const Array& a, const Array& b);
Array operator/(const Array& a, const Array& b);
Array operator-(const Array& a);
Array operator+(const Array& a, double b);
Array operator-(const Array& a, double b);
Array operator*(const Array& a, double b);
Array operator/(const Array& a, double b);
Array operator+(double a, const Array& b);
Array operator-(double a, const Array& b);
Array operator*(double a, const Array& b);
Array operator/(double a, const Array& b);

}  // namespace weft
