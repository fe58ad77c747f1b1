#include "weft/array.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "array/element.h"
#include "array/node.h"
#include "backend/backend.h"
#include "base/error.h"

namespace weft {
namespace {

std::atomic<uint64_t> node_count = 0;

Array leaf(Value value, const Device& device) {
  auto node = std::make_shared<Node>(nullptr, Attrs{}, std::vector<Array>{}, device);
  node->outputs.push_back(std::move(value));
  return {std::move(node), 0};
}

/// Bits of the largest whole number up to which all are values of T.
template <Element T>
constexpr int digits_of() {
  if (std::is_same_v<T, Float16>) return 11;
  if (std::is_same_v<T, BFloat16>) return 8;
  return std::numeric_limits<T>::digits;
}

/// Whether every value of From is one of To.
template <Element To, Element From>
constexpr bool holds() {
  if (std::is_same_v<To, From>) return true;
  if (std::is_same_v<To, bool>) return false;
  if (!std::is_integral_v<From>) return std::is_same_v<To, float>;
  return digits_of<To>() >= digits_of<From>() && (std::is_unsigned_v<From> || !std::is_unsigned_v<To>);
}

}  // namespace

Node::Node(const Op* op_row, Attrs op_attrs, std::vector<Array> op_inputs, Device on)
    : op(op_row),
      attrs(std::move(op_attrs)),
      inputs(std::move(op_inputs)),
      device(std::move(on)),
      traced(std::ranges::any_of(inputs, [](const Array& x) { return x && x.node()->traced; })),
      id(++node_count) {}

Node::~Node() {
  // A graph of a million ops in a row would otherwise be destroyed a million calls deep.
  std::vector<Array> pending = std::move(inputs);
  while (!pending.empty()) {
    const Array next = std::move(pending.back());
    pending.pop_back();
    if (next && next.node().use_count() == 1) {
      Node& node = *next.node();
      for (Array& input : node.inputs) pending.push_back(std::move(input));
      node.inputs.clear();
    }
  }
}

void check_dtype(std::string_view op, DType dtype, const Device& device) {
  if (!device.backend().has_dtype(dtype))
    fail(ErrorKind::unsupported, "[{}] {} has no {}; use i32, or the CPU", op, device.name(), name_of(dtype));
}

Array Array::from_bytes(DType dtype, std::span<const std::byte> bytes, const Shape& shape,
                        const Device& device) {
  const int64_t count = element_count(shape);
  if (bytes.size() != static_cast<uint64_t>(count) * size_of(dtype))
    fail(ErrorKind::invalid, "[array] {} bytes were given for {} elements of {}", bytes.size(), count,
         name_of(dtype));
  check_dtype("array", dtype, device);
  const StoragePtr storage = device.backend().alloc(std::max<uint64_t>(bytes.size(), 1), "array");
  if (!bytes.empty()) device.backend().write(storage, 0, bytes);
  return leaf({shape, dtype, storage, Layout::contiguous(shape)}, device);
}

Array Array::from_host(const HostTensor& values, const Device& device) {
  return from_bytes(values.dtype, values.bytes, values.shape, device);
}

const Shape& Array::shape() const {
  return value_of(*this).shape;
}
int64_t Array::shape(int64_t dim) const {
  return shape()[static_cast<size_t>(normalize_dim("shape", dim, ndim()))];
}
DType Array::dtype() const {
  return value_of(*this).dtype;
}
const Device& Array::device() const {
  return node_->device;
}

Array Array::to_device(const Device& to) const {
  if (to == device()) return *this;
  Array copy = from_host(to_host(), to);
  copy.node_->detached = true;
  copy.node_->traced = node_->traced;
  return copy;
}

template <Element T>
std::vector<T> Array::to_vector() const {
  std::vector<T> values(static_cast<size_t>(size()));
  if constexpr (!std::is_same_v<T, bool>)
    if (dtype() == dtype_of<T>()) {
      read(std::as_writable_bytes(std::span(values)));
      return values;
    }
  const HostTensor host = to_host();
  with_element_type(host.dtype, [&]<typename From>(From) {
    if constexpr (holds<T, From>())
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<T>(read_element<From>(host.bytes.data(), i));
    else
      fail(ErrorKind::invalid, "[to_vector] {} does not hold every value of {}; convert with to_dtype",
           name_of(dtype_of<T>()), name_of(host.dtype));
  });
  return values;
}

template <Element T>
T Array::item() const {
  if (size() != 1)
    fail(ErrorKind::invalid, "[item] an array of shape {} has no single value", to_string(shape()));
  return to_vector<T>()[0];
}

template std::vector<float> Array::to_vector() const;
template std::vector<Float16> Array::to_vector() const;
template std::vector<BFloat16> Array::to_vector() const;
template std::vector<int32_t> Array::to_vector() const;
template std::vector<uint32_t> Array::to_vector() const;
template std::vector<int64_t> Array::to_vector() const;
template std::vector<uint8_t> Array::to_vector() const;
template std::vector<int8_t> Array::to_vector() const;
template std::vector<bool> Array::to_vector() const;
template float Array::item() const;
template Float16 Array::item() const;
template BFloat16 Array::item() const;
template int32_t Array::item() const;
template uint32_t Array::item() const;
template int64_t Array::item() const;
template uint8_t Array::item() const;
template int8_t Array::item() const;
template bool Array::item() const;

}  // namespace weft
