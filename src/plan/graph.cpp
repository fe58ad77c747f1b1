#include "plan/graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ops/op.h"

namespace weft {
namespace {

/// Nodes that have no value yet, oldest first. Without recursion: graphs are deep.
std::vector<std::shared_ptr<Node>> nodes_behind(std::span<const Array> arrays) {
  std::vector<std::shared_ptr<Node>> nodes, pending;
  std::unordered_map<const Node*, bool> seen;
  for (const Array& array : arrays) pending.push_back(array.node());
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node->ready() || !seen.insert({node.get(), true}).second) continue;
    for (const Array& input : node->inputs)
      if (input) pending.push_back(input.node());
    nodes.push_back(node);
  }
  std::ranges::sort(nodes, {}, [](const std::shared_ptr<Node>& n) { return n->id; });
  return nodes;
}

bool is_constant(const Node& node) {
  return node.op->kind == OpKind::elementwise && node.inputs.empty();
}

/// Plain numbers and lengths, one after the other.
class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) {}
  void add(int64_t number) { key_.append(reinterpret_cast<const char*>(&number), sizeof number); }
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    key_ += text;
  }
  void add(const std::vector<int64_t>& list) {
    add(static_cast<int64_t>(list.size()));
    for (int64_t x : list) add(x);
  }
  void add(const AttrValue& value) {
    add(static_cast<int64_t>(value.index()));
    std::visit(
        [this](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, double>) {
            int64_t bits;
            std::memcpy(&bits, &v, sizeof bits);
            add(bits);
          } else if constexpr (std::is_same_v<T, bool>) {
            add(static_cast<int64_t>(v));
          } else if constexpr (std::is_same_v<T, std::string>) {
            add(std::string_view(v));
          } else if constexpr (!std::is_same_v<T, std::monostate>) {
            add(v);
          }
        },
        value);
  }

 private:
  std::string& key_;
};

}  // namespace

Graph::Graph(std::span<const Array> arrays) {
  for (std::shared_ptr<Node>& node : nodes_behind(arrays)) steps.push_back({.node = std::move(node)});
  number_nodes();
  mark_wanted(arrays);
  mark_taken();
  write_key();
}

void Graph::number_nodes() {
  // Leaves get their numbers in the order in which the steps ask for them.
  std::unordered_map<const Node*, int> step_of;
  for (size_t i = 0; i < steps.size(); ++i) step_of[steps[i].node.get()] = static_cast<int>(i);
  std::unordered_map<const Value*, int> leaf_of;
  std::unordered_map<const Storage*, int> storage_of;
  for (Step& step : steps)
    for (const Array& input : step.node->inputs) {
      if (!input || step_of.contains(input.node().get())) continue;
      const Value& value = value_of(input);
      if (!leaf_of.insert({&value, static_cast<int>(leaves.size())}).second) continue;
      const auto [at, fresh] = storage_of.insert({value.storage.get(), static_cast<int>(storages.size())});
      if (fresh) storages.push_back(value.storage);
      leaves.push_back({at->second, value.dtype, value.layout});
    }

  producers_.assign(leaves.size(), -1);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].first = static_cast<int>(producers_.size());
    producers_.resize(producers_.size() + steps[i].node->outputs.size(), static_cast<int>(i));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    for (const Array& input : step.node->inputs) {
      if (!input) {
        step.inputs.push_back(-1);
        continue;
      }
      const auto made = step_of.find(input.node().get());
      if (made == step_of.end()) {
        step.inputs.push_back(leaf_of.at(&value_of(input)));
        continue;
      }
      Step& source = steps[static_cast<size_t>(made->second)];
      step.inputs.push_back(source.first + static_cast<int>(input.output()));
      if (source.users.empty() || source.users.back() != static_cast<int>(i))
        source.users.push_back(static_cast<int>(i));
    }
    if (is_constant(*step.node)) {
      step.constant = static_cast<int>(constants.size());
      constants.push_back(step.node->attrs.number(step.node->op->scalar_attrs[0]));
    }
  }
}

void Graph::mark_wanted(std::span<const Array> arrays) {
  std::unordered_map<const Node*, long> handles;  // that the graph itself has
  std::unordered_map<const Node*, Step*> step_of;
  for (Step& step : steps) {
    step_of[step.node.get()] = &step;
    ++handles[step.node.get()];
    for (const Array& input : step.node->inputs)
      if (input) ++handles[input.node().get()];
  }
  for (const Array& array : arrays)
    if (const auto found = step_of.find(array.node().get()); found != step_of.end())
      found->second->wanted = true;

  // A value that lasts stays, or can be had again from values that stay by one fused kernel.
  std::vector<bool> lasts(steps.size(), false);
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    const OpKind kind = step.node->op->kind;
    const bool again =
        (kind == OpKind::elementwise || kind == OpKind::view) && std::ranges::all_of(step.inputs, [&](int v) {
          return v < 0 || producer(v) < 0 || lasts[static_cast<size_t>(producer(v))];
        });
    const bool held = step.node.use_count() > handles.at(step.node.get());
    step.wanted = step.wanted || (held && !again);
    lasts[i] = step.wanted || again;
  }
}

/// An input can be taken when the op is its only reader, and nobody outside holds it or its memory.
void Graph::mark_taken() {
  for (size_t s = 0; s < steps.size(); ++s) {
    Step& step = steps[s];
    if (!step.node->op->in_place) continue;
    const Array& input = step.node->inputs[0];
    if (std::ranges::count(step.inputs, step.inputs[0]) > 1) continue;  // what it writes it reads as well
    if (const int made = producer(step.inputs[0]); made >= 0) {
      const Step& source = steps[static_cast<size_t>(made)];
      step.takes_input =
          !source.wanted && source.users.size() == 1 && source.node->op->kind == OpKind::primitive;
    } else {
      const Value& value = value_of(input);
      step.takes_input = input.node().use_count() == 1 &&
                         value.storage.use_count() == 2 &&  // here, `storages`
                         value.layout == Layout::contiguous(value.shape);
    }
  }
}

void Graph::write_key() {
  KeyWriter writer(key);
  writer.add(static_cast<int64_t>(leaves.size()));
  for (const Leaf& leaf : leaves) {
    writer.add(leaf.storage);
    writer.add(static_cast<int64_t>(leaf.dtype));
    writer.add(leaf.layout.shape);
    writer.add(leaf.layout.strides);
    writer.add(leaf.layout.offset);
  }
  for (const Step& step : steps) {
    writer.add(static_cast<int64_t>(reinterpret_cast<intptr_t>(step.node->op)));
    writer.add(static_cast<int64_t>(step.wanted) + 2 * static_cast<int64_t>(step.takes_input));
    writer.add(static_cast<int64_t>(step.inputs.size()));
    for (int v : step.inputs) writer.add(v);
    for (const Value& output : step.node->outputs) writer.add(static_cast<int64_t>(output.dtype));
    if (step.constant >= 0) continue;
    for (const auto& [name, value] : step.node->attrs.values()) writer.add(value);
  }
}

const Value& Graph::value(int v) const {
  const Step& step = steps[static_cast<size_t>(producer(v))];
  return step.node->outputs[static_cast<size_t>(v - step.first)];
}

}  // namespace weft
