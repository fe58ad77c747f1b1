#pragma once

#include <concepts>
#include <iosfwd>
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

  /// The same values on another device. Evaluates; gradients do not pass (an error, not a zero).
  Array to_device(const Device& device) const;

  /// x[i]: element i along the first dim, which is dropped; negative from the end.
  Array operator[](int64_t index) const;

  explicit operator bool() const { return node_ != nullptr; }

  /// For the layers that make and walk graphs.
  Array(std::shared_ptr<Node> node, size_t output) : node_(std::move(node)), output_(output) {}
  const std::shared_ptr<Node>& node() const { return node_; }
  size_t output() const { return output_; }

 private:
  static Array from_bytes(DType dtype, std::span<const std::byte> bytes, const Shape& shape,
                          const Device& device);
  void read(std::span<std::byte> to) const;  ///< evaluates; `to` has room for all values

  std::shared_ptr<Node> node_;
  size_t output_ = 0;
};

/// Computes these arrays, together: one schedule.
void eval(std::span<const Array> arrays);
inline void eval(const Array& array) {
  eval(std::span(&array, 1));
}

/// The values, as NumPy and PyTorch print them: `array([[1.5000, 2.0000]])`. Names a dtype that is not f32,
/// i32 or bool, a device that is not the CPU, and the shape where it cannot be seen.
std::string to_string(const Array& array);
std::ostream& operator<<(std::ostream& stream, const Array& array);

/// An array or a number. A number takes the dtype of the array that it meets, unless it is of a higher kind
/// (bool, whole, real): then it is i32 or f32. docs/dtypes.md has the table.
class Term {
 public:
  Term(const Array& array) : array_(array) {}
  template <typename Number>
    requires std::integral<Number> || std::floating_point<Number>
  Term(Number value)
      : is_number_(true),
        value_(static_cast<double>(value)),
        dtype_(std::floating_point<Number>    ? DType::f32
               : std::is_same_v<Number, bool> ? DType::boolean
                                              : DType::i32) {}

  /// As an array for an op with `other`, of which one is not a number.
  Array beside(const Term& other) const;

 private:
  Array array_;
  bool is_number_ = false;
  double value_ = 0;
  DType dtype_ = DType::f32;
};

Array operator+(const Term& a, const Term& b);
Array operator-(const Term& a, const Term& b);
Array operator*(const Term& a, const Term& b);
Array operator/(const Term& a, const Term& b);  ///< of integers: f32
Array operator%(const Term& a, const Term& b);  ///< has the sign of b
Array operator-(const Array& x);

/// What comparisons give: an array of bool. `if (a == b)` does not compile, as arrays have no single truth;
/// write all(a == b).item<bool>().
struct Truths : Array {
  explicit operator bool() const = delete;
};
Truths operator==(const Term& a, const Term& b);
Truths operator!=(const Term& a, const Term& b);
Truths operator<(const Term& a, const Term& b);
Truths operator<=(const Term& a, const Term& b);
Truths operator>(const Term& a, const Term& b);
Truths operator>=(const Term& a, const Term& b);

Array operator&(const Term& a, const Term& b);  ///< bits of integers; logic of bools
Array operator|(const Term& a, const Term& b);
Array operator^(const Term& a, const Term& b);
Array operator<<(const Term& a, const Term& b);
Array operator>>(const Term& a, const Term& b);
Array operator~(const Array& x);

Array& operator+=(Array& a, const Term& b);
Array& operator-=(Array& a, const Term& b);
Array& operator*=(Array& a, const Term& b);
Array& operator/=(Array& a, const Term& b);

}  // namespace weft
