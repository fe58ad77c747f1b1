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
  static Array from_vector(const std::vector<float>& values, const Shape& shape, const Device& device = {});

  const Shape& shape() const;
  int64_t shape(int64_t dim) const;  ///< negative from the end
  size_t ndim() const { return shape().size(); }
  int64_t size() const { return element_count(shape()); }
  DType dtype() const;
  const Device& device() const;

  HostTensor to_host() const;            ///< evaluates
  std::vector<float> to_vector() const;  ///< evaluates; floats only
  float item() const;                    ///< the value of an array of one element

  explicit operator bool() const { return node_ != nullptr; }

  /// For the layers that make and walk graphs.
  Array(std::shared_ptr<Node> node, size_t output) : node_(std::move(node)), output_(output) {}
  const std::shared_ptr<Node>& node() const { return node_; }
  size_t output() const { return output_; }

 private:
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
