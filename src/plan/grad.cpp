#include "weft/grad.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "array/node.h"
#include "base/error.h"
#include "ops/random.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

using NodePtr = std::shared_ptr<Node>;
using NodeSet = std::unordered_set<const Node*>;

/// What the user called, of which the node is a part.
std::string_view name_of(const Node& node) {
  return node.asked->name;
}

/// Whether a gradient passes from a node to this input of it: numbers that are not floats have none.
bool passes(const Node& node, const Array& input) {
  return input && is_float(input.dtype()) && !node.op->stops_gradient;
}
/// The same, whatever the dtype.
bool depends(const Node& node, const Array& input) {
  return input && !node.op->stops_gradient;
}

using Follow = bool (*)(const Node& node, const Array& input);

/// All nodes that the outputs are made of, oldest first. Nothing behind `ends` is looked at.
std::vector<NodePtr> ancestors(const std::vector<Array>& outputs, Follow follow, const NodeSet& ends = {}) {
  std::vector<NodePtr> all, pending;
  NodeSet seen;
  for (const Array& y : outputs) pending.push_back(y.node());
  while (!pending.empty()) {  // without recursion: graphs are deep
    const NodePtr node = pending.back();
    pending.pop_back();
    if (!seen.insert(node.get()).second) continue;
    all.push_back(node);
    if (ends.contains(node.get())) continue;
    for (const Array& input : node->inputs)
      if (follow(*node, input)) pending.push_back(input.node());
  }
  std::ranges::sort(all, {}, [](const NodePtr& n) { return n->id; });
  return all;
}

/// Those of `nodes` (oldest first) that are made of a target.
NodeSet made_of(const std::vector<NodePtr>& nodes, Follow follow, const NodeSet& targets) {
  NodeSet result;
  for (const NodePtr& node : nodes)
    if (targets.contains(node.get()) || std::ranges::any_of(node->inputs, [&](const Array& input) {
          return follow(*node, input) && result.contains(input.node().get());
        }))
      result.insert(node.get());
  return result;
}

/// Throws when x is used, but only by way of indices or truths, which no gradient passes.
void check_unused(const std::vector<Array>& outputs, const Array& x) {
  const std::vector<NodePtr> nodes = ancestors(outputs, depends);
  const NodeSet users = made_of(nodes, depends, {x.node().get()});
  for (const NodePtr& node : nodes)
    if (users.contains(node.get()) && node->op &&
        std::ranges::any_of(node->outputs, [](const Value& v) { return !is_float(v.dtype); }))
      fail(ErrorKind::invalid,
           "[grad] {} has no gradient, and an input is used through it only; stop_gradient() says that this "
           "is "
           "meant",
           name_of(*node));
}

void check_evaluated(const std::vector<NodePtr>& nodes, const NodeSet& path, const NodeSet& ends,
                     const Array& x) {
  for (const NodePtr& node : nodes) {
    if (!node->detached || node->id <= x.node()->id || ends.contains(node.get())) continue;
    // Behind a node that was evaluated may be x. Of arguments of grad() it is known; else it is so only if x
    // was not found elsewhere.
    if (x.node()->traced ? node->traced : !path.contains(x.node().get()))
      fail(ErrorKind::invalid,
           "[grad] the result was evaluated, in whole or in part, before its gradient was asked for; use "
           "grad or "
           "value_and_grad, and evaluate nothing inside the function");
  }
}

/// Gradients by node and output. Those of halves may be f32: what is added up, or summed back to a shape that
/// was broadcast, is rounded when an op that computes needs it, or at the end.
class Gradients {
 public:
  void add(const Array& to, const Array& gradient) {
    std::vector<Array>& of_node = sums_[to.node().get()];
    of_node.resize(to.node()->outputs.size());
    Array& sum = of_node[to.output()];
    sum = sum ? widened(sum) + widened(gradient) : gradient;
  }
  /// Of all outputs of a node; null when nothing has arrived there.
  const std::vector<Array>* of(const Node& node) const {
    const auto found = sums_.find(&node);
    return found == sums_.end() ? nullptr : &found->second;
  }
  Array of(const Array& x) const {
    const std::vector<Array>* all = of(*x.node());
    return all ? (*all)[x.output()] : Array();
  }

 private:
  std::unordered_map<const Node*, std::vector<Array>> sums_;
};

/// One step back: from a node's outputs to its inputs.
void pass_back(const NodePtr& node, const NodeSet& path, Gradients& gradients) {
  const Gradient& gradient = node->gradient ? node->gradient : node->op->gradient;
  if (!gradient) fail(ErrorKind::invalid, "[grad] {} has no gradient", name_of(*node));
  std::vector<Array> results;
  for (size_t i = 0; i < node->outputs.size(); ++i) results.emplace_back(node, i);
  std::vector<Array> output_grads = *gradients.of(*node);
  if (!node->op->only_moves)
    for (size_t i = 0; i < output_grads.size(); ++i)
      if (output_grads[i]) output_grads[i] = as(output_grads[i], node->outputs[i].dtype);
  const std::vector<Array> input_grads =
      gradient(GradCall{{*node->op, node->inputs, node->attrs, node->device}, results, output_grads});
  for (size_t i = 0; i < node->inputs.size(); ++i) {
    const Array& input = node->inputs[i];
    if (!passes(*node, input) || !path.contains(input.node().get())) continue;
    if (i >= input_grads.size() || !input_grads[i])
      fail(ErrorKind::invalid, "[grad] {} has no gradient for input {}", name_of(*node), i);
    gradients.add(input, unbroadcast(input_grads[i], input.shape()));
  }
}

/// `independent`: inputs are seen as if none were made of another.
std::vector<Array> gradients_of(const std::vector<Array>& outputs, const std::vector<Array>& output_grads,
                                const std::vector<Array>& inputs, bool independent) {
  Gradients gradients;
  std::vector<Array> used;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Array& y = outputs[i];
    if (!output_grads[i]) continue;
    if (!is_float(y.dtype()))
      fail(ErrorKind::invalid, "[grad] {} has no gradient",
           y.node()->op ? name_of(*y.node()) : weft::name_of(y.dtype()));
    gradients.add(y, output_grads[i]);
    used.push_back(y);
  }
  NodeSet targets;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_float(inputs[i].dtype()))
      fail(ErrorKind::invalid, "[grad] input {} is {}: only floats have gradients", i,
           weft::name_of(inputs[i].dtype()));
    targets.insert(inputs[i].node().get());
  }

  const NodeSet ends = independent ? targets : NodeSet{};
  const std::vector<NodePtr> nodes = ancestors(used, passes, ends);
  const NodeSet path = made_of(nodes, passes, targets);
  for (const Array& x : inputs) check_evaluated(nodes, path, ends, x);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // users come before what they use
    const bool leads_on =
        !ends.contains(node->get()) && std::ranges::any_of((*node)->inputs, [&](const Array& x) {
          return passes(**node, x) && path.contains(x.node().get());
        });
    if (leads_on && gradients.of(**node)) pass_back(*node, path, gradients);
  }

  std::vector<Array> result;
  for (const Array& x : inputs) {
    const Array gradient = gradients.of(x);
    if (!gradient && !path.contains(x.node().get())) check_unused(used, x);
    result.push_back(gradient ? as(gradient, x.dtype()) : zeros_like(x));
  }
  return result;
}

/// Fresh handles: an argument that the function also captures is a constant there. Outer gradients still
/// pass.
std::vector<Array> aliases(const std::vector<Array>& arguments) {
  std::vector<Array> result;
  for (const Array& x : arguments) result.push_back(call("alias", {x}));
  return result;
}

std::vector<Array> traced(const std::vector<Array>& arguments) {
  std::vector<Array> result = aliases(arguments);
  for (const Array& x : result) x.node()->traced = true;
  return result;
}

/// y as it is, with a gradient of its own: one array per entry of `inputs`.
Array with_gradient(const Array& y, const std::vector<Array>& inputs,
                    std::function<std::vector<Array>(const GradCall&, const std::vector<Array>&)> gradient) {
  std::vector<Array> all = {y};
  all.insert(all.end(), inputs.begin(), inputs.end());
  const Array result = call("custom_gradient", std::move(all));
  result.node()->gradient = [gradient = std::move(gradient)](const GradCall& c) {
    std::vector<Array> grads = gradient(c, {c.inputs.begin() + 1, c.inputs.end()});
    grads.insert(grads.begin(), Array());  // nothing for what y was made of
    return grads;
  };
  return result;
}

/// The arrays made before node `first` that y is directly made of, as far as a gradient passes.
std::vector<Array> used_from_before(const Array& y, uint64_t first) {
  std::vector<Array> used;
  NodeSet before;
  const std::vector<NodePtr> nodes = ancestors({y}, passes);
  for (const NodePtr& node : nodes)
    if (node->id < first) before.insert(node.get());
  if (y.node()->id < first) used.push_back(y);
  for (const NodePtr& node : nodes)
    for (const Array& input : node->inputs)
      if (node->id >= first && passes(*node, input) && before.contains(input.node().get()) &&
          std::ranges::none_of(
              used, [&](const Array& x) { return x.node() == input.node() && x.output() == input.output(); }))
        used.push_back(input);
  return used;
}

}  // namespace

std::vector<Array> vjp(const std::vector<Array>& outputs, const std::vector<Array>& output_grads,
                       const std::vector<Array>& inputs) {
  return gradients_of(outputs, output_grads, inputs, false);
}

std::function<std::pair<Array, std::vector<Array>>(const std::vector<Array>&)> value_and_grad(
    ArrayFunction f) {
  return [f = std::move(f)](const std::vector<Array>& arguments) {
    const std::vector<Array> leaves = traced(arguments);
    const Array value = f(leaves);
    if (value.size() != 1)
      fail(ErrorKind::invalid, "[grad] the function returned shape {}, not a scalar",
           to_string(value.shape()));
    return std::pair(value, vjp({value}, {ones_like(value)}, leaves));
  };
}

std::function<std::vector<Array>(const std::vector<Array>&)> grad(ArrayFunction f) {
  return [both = value_and_grad(std::move(f))](const std::vector<Array>& arguments) {
    return both(arguments).second;
  };
}

std::pair<Array, Array> jvp(const ArrayFunction& f, const std::vector<Array>& arguments,
                            const std::vector<Array>& tangents) {
  // The gradients are linear in the output's gradient: differentiated by it, they are the derivative
  // transposed.
  const std::vector<Array> leaves = traced(arguments);
  const Array y = f(leaves), weight = call("alias", {zeros_like(y)});
  return {y, vjp(vjp({y}, {weight}, leaves), tangents, {weight})[0]};
}

ArrayFunction checkpoint(ArrayFunction f) {
  return [f = std::move(f)](const std::vector<Array>& arguments) {
    const StreamState keys = stream_state();  // dropout must drop the same elements again
    const std::vector<Array> leaves = aliases(arguments);
    const Array y = f(leaves);
    const std::vector<Array> used = used_from_before(y, leaves.empty() ? y.node()->id : leaves[0].node()->id);
    return with_gradient(stop_gradient(y), used,
                         [f, arguments, keys](const GradCall& c, const std::vector<Array>& inputs) {
                           const ReplayedStream replayed(keys);
                           return gradients_of({f(aliases(arguments))}, c.output_grads, inputs, true);
                         });
  };
}

ArrayFunction custom_gradient(ArrayFunction f, CustomVjp backward) {
  return [f = std::move(f), backward = std::move(backward)](const std::vector<Array>& arguments) {
    std::vector<Array> constants;
    for (const Array& x : arguments) constants.push_back(stop_gradient(x));
    return with_gradient(f(constants), arguments,
                         [backward](const GradCall& c, const std::vector<Array>& inputs) {
                           std::vector<Array> grads = backward(inputs, c.outputs[0], c.output_grads[0]);
                           if (grads.size() != inputs.size())
                             fail(ErrorKind::invalid, "[custom_gradient] {} gradients for {} arguments",
                                  grads.size(), inputs.size());
                           return grads;
                         });
  };
}

Array stop_gradient(const Array& x) {
  return call("stop_gradient", {x});
}

}  // namespace weft
