#include "weft/array.h"

#include <atomic>
#include <cstring>

#include "array/half.h"
#include "array/host_tensor.h"
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

}  // namespace

Node::Node(const Op* op_row, Attrs op_attrs, std::vector<Array> op_inputs, Device on)
    : op(op_row),
      attrs(std::move(op_attrs)),
      inputs(std::move(op_inputs)),
      device(std::move(on)),
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

Array Array::from_host(const HostTensor& values, const Device& device) {
  const uint64_t bytes = static_cast<uint64_t>(element_count(values.shape)) * size_of(values.dtype);
  if (values.bytes.size() != bytes)
    fail(ErrorKind::invalid, "[array] {} bytes were given for {} elements of {}", values.bytes.size(),
         element_count(values.shape), name_of(values.dtype));
  const StoragePtr storage = device.backend().alloc(std::max<uint64_t>(bytes, 1), "array");
  if (bytes) device.backend().write(storage, 0, values.bytes);
  return leaf({values.shape, values.dtype, storage, Layout::contiguous(values.shape)}, device);
}

Array Array::from_vector(const std::vector<float>& values, const Shape& shape, const Device& device) {
  HostTensor host{DType::f32, shape, std::vector<std::byte>(values.size() * sizeof(float))};
  if (!values.empty()) std::memcpy(host.bytes.data(), values.data(), host.bytes.size());
  return from_host(host, device);
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

float Array::item() const {
  if (size() != 1)
    fail(ErrorKind::invalid, "[item] an array of shape {} has no single value", to_string(shape()));
  return to_vector()[0];
}

std::vector<float> Array::to_vector() const {
  const HostTensor host = to_host();
  std::vector<float> values(static_cast<size_t>(size()));
  if (values.empty()) return values;
  if (host.dtype == DType::f32) {
    std::memcpy(values.data(), host.bytes.data(), host.bytes.size());
  } else if (host.dtype == DType::f16 || host.dtype == DType::bf16) {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, host.bytes.data() + 2 * i, 2);
      values[i] = host.dtype == DType::f16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
  } else {
    fail(ErrorKind::invalid, "[to_vector] the array holds {}, not floats", name_of(host.dtype));
  }
  return values;
}

}  // namespace weft
