#include "weft/custom.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "base/error.h"
#include "ops/op.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

/// Rows that programs added. Nodes and plans point at them, so they stay.
class CustomOps {
 public:
  const Op& add(Op op, std::string wgsl) {
    const std::scoped_lock lock(mutex_);
    const auto built_in = all_ops();
    if (op.name.empty() || ops_.contains(op.name) ||
        std::ranges::any_of(built_in, [&](const Op* other) { return other->name == op.name; }))
      fail(ErrorKind::invalid, "[custom_op] there is an op '{}' already", op.name);
    op.scalar.wgsl[0] = texts_.emplace_back(std::move(wgsl));
    std::string name = op.name;
    return ops_.emplace(std::move(name), std::move(op)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Op> ops_;
  std::deque<std::string> texts_;
};

std::vector<OutputSpec> float_result(const OpCall& call) {
  Shape shape = call.inputs[0].shape();
  for (const Array& input : call.inputs) shape = broadcast_shapes(call.op.name, shape, input.shape());
  return {{shape, call.inputs[0].dtype()}};
}

}  // namespace

CustomOp::CustomOp(std::string name, int arity, Loop cpu, std::string wgsl, CustomVjp gradient) {
  static CustomOps ops;
  Op op{.name = std::move(name),
        .kind = OpKind::elementwise,
        .min_inputs = arity,
        .max_inputs = arity,
        .promotes_from = 0,
        .infer = float_result};
  op.scalar = {.arity = arity, .cpu = {cpu}};
  if (gradient)
    op.gradient = [gradient = std::move(gradient)](const GradCall& c) {
      std::vector<Array> grads = gradient(c.inputs, c.outputs[0], c.output_grads[0]);
      if (grads.size() != c.inputs.size())
        fail(ErrorKind::invalid, "[{}] {} gradients for {} arguments", c.op.name, grads.size(),
             c.inputs.size());
      for (size_t i = 0; i < grads.size(); ++i)
        if (grads[i]) grads[i] = unbroadcast(grads[i], c.inputs[i].shape());
      return grads;
    };
  op_ = &ops.add(std::move(op), "(" + std::move(wgsl) + ")");
}

Array CustomOp::operator()(const std::vector<Array>& inputs) const {
  std::vector<Array> floats = inputs;
  for (Array& x : floats)
    if (x && !is_float(x.dtype())) x = as(x, DType::f32);
  return apply(*op_, std::move(floats)).at(0);
}

}  // namespace weft
