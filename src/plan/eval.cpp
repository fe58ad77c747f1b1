#include "plan/eval.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <unordered_map>

#include "array/host_tensor.h"
#include "array/node.h"
#include "backend/backend.h"
#include "base/error.h"
#include "ops/op.h"
#include "plan/view.h"

namespace weft {
namespace {

std::atomic<uint64_t> evals = 0, steps_run = 0, fused = 0;

/// Makes the steps for a set of arrays: views become layouts, elementwise nodes with one user melt into that
/// user.
class Scheduler {
 public:
  explicit Scheduler(std::span<const Array> wanted) {
    for (const Array& array : wanted) {
      collect(array.node());
      keep_.insert({array.node().get(), true});
    }
    std::ranges::sort(order_, {}, [](const std::shared_ptr<Node>& n) { return n->id; });
  }

  void run() {
    for (const std::shared_ptr<Node>& node : order_) {
      count_melted(*node);
      if (!melts(*node)) materialize(*node);
    }
    for (const std::shared_ptr<Node>& node : order_)
      if (node->ready()) {
        node->detached = !node->inputs.empty();
        node->inputs.clear();
      }
  }

 private:
  struct Uses {
    int count = 0;
    const Node* by = nullptr;
    bool all_elementwise = true;
  };
  struct Size {
    int ops = 0, loads = 0;
  };
  // A fused kernel of an op with two such inputs stays within the 8 buffers that every GPU can bind.
  static constexpr int kMaxFusedOps = 32, kMaxFusedLoads = 3;

  /// Nodes that have no value yet, in any order, and who uses them. Without recursion: graphs are deep.
  void collect(const std::shared_ptr<Node>& root) {
    std::vector<std::shared_ptr<Node>> pending = {root};
    while (!pending.empty()) {
      const std::shared_ptr<Node> node = pending.back();
      pending.pop_back();
      if (node->ready() || !seen_.insert({node.get(), true}).second) continue;
      order_.push_back(node);
      for (const Array& input : node->inputs) {
        if (!input) continue;
        Uses& uses = uses_[input.node().get()];
        ++uses.count;
        uses.by = node.get();
        uses.all_elementwise = uses.all_elementwise && node->op->kind == OpKind::elementwise;
        pending.push_back(input.node());
      }
    }
  }

  /// Ops and loads of the program that a node would be.
  void count_melted(const Node& node) {
    if (node.op->kind != OpKind::elementwise) return;
    Size& size = sizes_[&node];
    size.ops = node.inputs.empty() ? 0 : 1;  // constants are free
    for (const Array& input : node.inputs) {
      const auto inner = sizes_.find(input.node().get());
      const bool melted = inner != sizes_.end() && !input.node()->ready();
      size.ops += melted ? inner->second.ops : 0;
      size.loads += melted ? inner->second.loads : 1;
    }
  }

  /// An elementwise node that nobody wants but one elementwise node of the same shape is computed inside that
  /// one.
  bool melts(const Node& node) const {
    if (node.op->kind != OpKind::elementwise || keep_.contains(&node)) return false;
    const Uses& uses = uses_.at(&node);
    if (node.inputs.empty())
      return uses.all_elementwise;  // a constant is written into each program that needs it
    const Size& size = sizes_.at(&node);
    return uses.count == 1 && uses.by->op->kind == OpKind::elementwise &&
           uses.by->outputs[0].shape == node.outputs[0].shape && size.ops <= kMaxFusedOps &&
           size.loads <= kMaxFusedLoads;
  }

  void materialize(Node& node) {
    switch (node.op->kind) {
      case OpKind::view:
        return materialize_view(node);
      case OpKind::elementwise:
        return materialize_elementwise(node);
      case OpKind::primitive:
        return materialize_primitive(node);
      case OpKind::composed:
        break;
    }
    fail(ErrorKind::invalid, "[eval] composed op '{}' was recorded", node.op->name);
  }

  Operand operand(const Array& array) const {
    const Value& value = value_of(array);
    return {value.storage, value.dtype, value.layout};
  }

  void alloc(Node& node) {
    for (Value& value : node.outputs) {
      const uint64_t bytes = static_cast<uint64_t>(element_count(value.shape)) * size_of(value.dtype);
      value.storage = node.device.backend().alloc(std::max<uint64_t>(bytes, 1), node.op->name);
      value.layout = Layout::contiguous(value.shape);
    }
  }

  void run_step(Node& node, Step step) {
    for (const Value& value : node.outputs)
      step.outputs.push_back({value.storage, value.dtype, value.layout});
    step.attrs = &node.attrs;
    node.device.backend().run(std::span(&step, 1));
    ++steps_run;
  }

  void materialize_view(Node& node) {
    const Value& input = value_of(node.inputs[0]);
    Value& output = node.outputs[0];
    if (auto layout = view_layout(*node.op, node.attrs, input.layout, output.shape)) {
      output.storage = input.storage;
      output.layout = *std::move(layout);
      return;
    }
    // Only a reshape can fail to be a view: copied to row-major order, it is one.
    alloc(node);
    Step step{.kernel = "copy", .inputs = {operand(node.inputs[0])}};
    step.outputs.push_back({output.storage, output.dtype, Layout::contiguous(input.shape)});
    node.device.backend().run(std::span(&step, 1));
    ++steps_run;
  }

  void materialize_primitive(Node& node) {
    alloc(node);
    Step step{.kernel = node.op->name};
    for (const Array& input : node.inputs) step.inputs.push_back(input ? operand(input) : Operand{});
    run_step(node, std::move(step));
  }

  void materialize_elementwise(Node& node) {
    alloc(node);
    ElementwiseProgram program;
    Step step{.kernel = "elementwise"};
    std::unordered_map<const Value*, int> loaded;
    gather_loads(node, node.outputs[0].shape, program, step, loaded);
    const int result = emit(node, program, loaded);
    program.stores.push_back(result);
    step.program = &program;
    run_step(node, std::move(step));
  }

  void gather_loads(const Node& node, const Shape& shape, ElementwiseProgram& program, Step& step,
                    std::unordered_map<const Value*, int>& loaded) {
    for (const Array& input : node.inputs) {
      if (!input.node()->ready()) {
        gather_loads(*input.node(), shape, program, step, loaded);
        continue;
      }
      const Value& value = value_of(input);
      if (loaded.contains(&value)) continue;
      loaded[&value] = static_cast<int>(program.loads.size());
      program.loads.push_back(value.dtype);
      step.inputs.push_back({value.storage, value.dtype, value.layout.expanded(shape)});
    }
  }

  int emit(const Node& node, ElementwiseProgram& program,
           const std::unordered_map<const Value*, int>& loaded) {
    ElementwiseProgram::Instruction instruction{.op = &node.op->scalar, .dtype = node.outputs[0].dtype};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Array& input = node.inputs[i];
      instruction.inputs[i] =
          input.node()->ready() ? loaded.at(&value_of(input)) : emit(*input.node(), program, loaded);
    }
    for (size_t i = 0; i < node.op->scalar_attrs.size(); ++i)
      instruction.attrs[i] = node.attrs.number(node.op->scalar_attrs[i]);
    program.instructions.push_back(instruction);
    ++fused;
    return static_cast<int>(program.loads.size() + program.instructions.size()) - 1;
  }

  std::vector<std::shared_ptr<Node>> order_;
  std::unordered_map<const Node*, bool> seen_, keep_;
  std::unordered_map<const Node*, Uses> uses_;
  std::unordered_map<const Node*, Size> sizes_;
};

}  // namespace

EvalCounters eval_counters() {
  return {evals, steps_run, fused};
}

void eval(std::span<const Array> arrays) {
  ++evals;
  Scheduler(arrays).run();
}

HostTensor Array::to_host() const {
  eval(*this);
  const Value& value = value_of(*this);
  HostTensor host{value.dtype, value.shape,
                  std::vector<std::byte>(static_cast<size_t>(size()) * size_of(value.dtype))};
  if (host.bytes.empty()) return host;
  StoragePtr storage = value.storage;
  Backend& backend = device().backend();
  if (!value.layout.is_contiguous()) {
    storage = backend.alloc(host.bytes.size(), "to_host");
    Step step{.kernel = "copy", .inputs = {{value.storage, value.dtype, value.layout}}};
    step.outputs.push_back({storage, value.dtype, Layout::contiguous(value.shape)});
    backend.run(std::span(&step, 1));
  }
  backend.read(storage, 0, host.bytes);
  return host;
}

}  // namespace weft
