#pragma once

#include <functional>
#include <vector>

#include "array/attrs.h"
#include "array/layout.h"
#include "array/storage.h"
#include "weft/array.h"

namespace weft {

struct Op;
struct GradCall;

/// One result of a node. Shape and dtype are known at once; storage and layout once it is evaluated.
struct Value {
  Shape shape;
  DType dtype = DType::f32;
  StoragePtr storage = nullptr;
  Layout layout = {};

  bool ready() const { return storage != nullptr; }
};

/// A recorded call of an op. Immutable for those who hold it; evaluation fills in the values and drops the
/// inputs.
struct Node {
  const Op* op = nullptr;     ///< null: a leaf that came with its value
  const Op* asked = nullptr;  ///< the op that was called, of which this one is a part
  Attrs attrs;
  std::vector<Array> inputs;
  std::vector<Value> outputs;
  Device device;
  bool detached = false;  ///< evaluated, and its inputs forgotten: gradients cannot pass
  bool traced = false;    ///< made of an argument of grad()
  std::function<std::vector<Array>(const GradCall&)> gradient = {};  ///< instead of the op's
  uint64_t id = 0;  ///< counts up: inputs have smaller ids than their users

  Node(const Op* op_row, Attrs op_attrs, std::vector<Array> op_inputs, Device on);
  ~Node();  ///< takes long chains apart without recursion
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool ready() const { return outputs[0].ready(); }
};

/// Throws ErrorKind::unsupported where the device has no such elements.
void check_dtype(std::string_view op, DType dtype, const Device& device);

inline const Value& value_of(const Array& array) {
  return array.node()->outputs[array.output()];
}

}  // namespace weft
