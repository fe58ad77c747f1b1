#include "weft/grad.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "array/node.h"
#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

/// Nodes between the outputs and the inputs, newest first: every user of a node comes before it.
/// `detached`: the newest evaluated node that was met, behind which any older one may be.
std::vector<std::shared_ptr<Node>> path_nodes(const std::vector<Array>& outputs,
                                              const std::vector<Array>& inputs, uint64_t& detached) {
  std::vector<std::shared_ptr<Node>> all, pending;
  std::unordered_set<const Node*> seen, targets;
  for (const Array& x : inputs) targets.insert(x.node().get());
  for (const Array& y : outputs) pending.push_back(y.node());
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = pending.back();
    pending.pop_back();
    if (!seen.insert(node.get()).second) continue;
    all.push_back(node);
    if (node->detached) detached = std::max(detached, node->id);
    for (const Array& input : node->inputs)
      if (input) pending.push_back(input.node());
  }
  std::ranges::sort(all, {}, [](const std::shared_ptr<Node>& n) { return n->id; });
  std::unordered_set<const Node*> reaches;
  std::erase_if(all, [&](const std::shared_ptr<Node>& node) {
    const bool leads =
        targets.contains(node.get()) || std::ranges::any_of(node->inputs, [&](const Array& input) {
          return input && reaches.contains(input.node().get());
        });
    if (leads) reaches.insert(node.get());
    return !leads;
  });
  std::ranges::reverse(all);
  return all;
}

}  // namespace

std::vector<Array> vjp(const std::vector<Array>& outputs, const std::vector<Array>& output_grads,
                       const std::vector<Array>& inputs) {
  std::unordered_map<const Node*, std::vector<Array>> grads;  // per output of a node
  const auto add = [&](const Array& to, const Array& gradient) {
    std::vector<Array>& of_node = grads[to.node().get()];
    of_node.resize(to.node()->outputs.size());
    Array& sum = of_node[to.output()];
    sum = sum ? sum + gradient : gradient;
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    if (output_grads[i]) add(outputs[i], output_grads[i]);

  std::unordered_set<const Node*> wanted;
  for (const Array& x : inputs) wanted.insert(x.node().get());
  uint64_t detached = 0;
  const std::vector<std::shared_ptr<Node>> path = path_nodes(outputs, inputs, detached);
  std::unordered_set<const Node*> on_path;
  for (const auto& node : path) on_path.insert(node.get());

  for (const std::shared_ptr<Node>& node : path) {
    if (!node->op || !grads.contains(node.get())) continue;
    const bool leads_on = std::ranges::any_of(
        node->inputs, [&](const Array& in) { return in && on_path.contains(in.node().get()); });
    if (!leads_on) continue;
    if (!node->op->gradient) fail(ErrorKind::invalid, "[grad] {} has no gradient", node->op->name);
    std::vector<Array> results;
    for (size_t i = 0; i < node->outputs.size(); ++i) results.emplace_back(node, i);
    const std::vector<Array> output_grad = grads.at(node.get());
    const std::vector<Array> input_grads = node->op->gradient(
        GradCall{{*node->op, node->inputs, node->attrs, node->device}, results, output_grad});
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (i >= input_grads.size() || !input_grads[i] || !node->inputs[i] ||
          !on_path.contains(node->inputs[i].node().get()))
        continue;
      add(node->inputs[i], unbroadcast(input_grads[i], node->inputs[i].shape()));
    }
  }
  std::vector<Array> result;
  for (const Array& x : inputs) {
    const auto found = grads.find(x.node().get());
    const bool has = found != grads.end() && found->second.size() > x.output() && found->second[x.output()];
    if (!has && detached > x.node()->id && !on_path.contains(x.node().get()))
      fail(ErrorKind::invalid,
           "[grad] the result was evaluated before its gradient was asked for; use grad or value_and_grad on "
           "the function");
    result.push_back(has ? found->second[x.output()] : zeros_like(x));
  }
  return result;
}

std::function<std::pair<Array, std::vector<Array>>(const std::vector<Array>&)> value_and_grad(
    ArrayFunction f) {
  return [f = std::move(f)](const std::vector<Array>& arguments) {
    // Fresh handles: an argument that the function also captures is a constant there. Outer gradients still
    // pass.
    std::vector<Array> leaves;
    for (const Array& x : arguments) leaves.push_back(call("alias", {x}));
    const Array value = f(leaves);
    if (value.size() != 1)
      fail(ErrorKind::invalid, "[grad] the function returned shape {}, not a scalar",
           to_string(value.shape()));
    return std::pair(value, vjp({value}, {expand(scalar_like(value, 1), value.shape())}, leaves));
  };
}

std::function<std::vector<Array>(const std::vector<Array>&)> grad(ArrayFunction f) {
  return [both = value_and_grad(std::move(f))](const std::vector<Array>& arguments) {
    return both(arguments).second;
  };
}

Array stop_gradient(const Array& x) {
  return call("stop_gradient", {x});
}

}  // namespace weft
