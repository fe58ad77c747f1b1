#include "weft/compile.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "array/node.h"
#include "plan/eval.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace weft {
namespace {

Array leaf(Value value, const Device& device) {
  auto node = std::make_shared<Node>(nullptr, Attrs{}, std::vector<Array>{}, device);
  node->outputs.push_back(std::move(value));
  node->detached = true;
  return {std::move(node), 0};
}

/// The storages of the arguments, each once.
std::vector<StoragePtr> storages_of(const std::vector<Array>& arguments) {
  std::vector<StoragePtr> storages;
  for (const Array& x : arguments)
    if (std::ranges::find(storages, value_of(x).storage) == storages.end())
      storages.push_back(value_of(x).storage);
  return storages;
}

/// What a recording depends on.
std::vector<int64_t> signature(const std::vector<Array>& arguments) {
  const std::vector<StoragePtr> storages = storages_of(arguments);
  std::vector<int64_t> words;
  words.reserve(8 * arguments.size());
  for (const Array& x : arguments) {
    const Value& value = value_of(x);
    words.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(&x.device().backend())));
    words.push_back(static_cast<int64_t>(value.dtype));
    words.push_back(std::ranges::find(storages, value.storage) - storages.begin());
    words.push_back(value.layout.offset);
    words.push_back(static_cast<int64_t>(value.shape.size()));
    words.insert(words.end(), value.shape.begin(), value.shape.end());
    words.insert(words.end(), value.layout.strides.begin(), value.layout.strides.end());
  }
  return words;
}

/// One recording of a function.
class Recording {
 public:
  Recording(const ArraysFunction& f, const std::vector<Array>& arguments, const std::vector<size_t>& taken) {
    // Stand-ins with storage of their own: what `f` captures is told from what it is given. One that is taken
    // has no values, and nobody here holds it when the graph is looked at.
    const std::vector<StoragePtr> given = storages_of(arguments);
    std::vector<StoragePtr> copies;
    for (const StoragePtr& storage : given) {
      Backend& backend = device_of(arguments, storage).backend();
      const bool is_taken =
          std::ranges::any_of(taken, [&](size_t i) { return value_of(arguments.at(i)).storage == storage; });
      copies.push_back(backend.alloc(is_taken ? 4 : storage->size(), "argument"));
      if (!is_taken) backend.copy(storage, 0, copies.back(), 0, storage->size());
    }
    std::vector<Array> stand_ins;
    for (const Array& x : arguments) {
      Value value = value_of(x);
      value.storage = copies[static_cast<size_t>(std::ranges::find(given, value.storage) - given.begin())];
      stand_ins.push_back(leaf(std::move(value), x.device()));
      stand_ins.back().node()->detached = false;
    }
    std::vector<const Node*> stand_in_nodes;
    std::vector<const Storage*> copied;
    for (const Array& x : stand_ins) stand_in_nodes.push_back(x.node().get());
    for (const StoragePtr& copy : copies) copied.push_back(copy.get());
    const std::vector<Array> outputs = f(stand_ins);
    for (size_t i : taken) {
      std::erase(copies, value_of(stand_ins[i]).storage);
      stand_ins[i] = {};
    }
    std::vector<Array> lazy;
    for (const Array& y : outputs)
      if (!y.node()->ready()) lazy.push_back(y);
    if (!lazy.empty()) device_ = lazy[0].device();
    Graph graph(lazy);
    plan_ = plan_for(device_, graph, true);
    constants_ = graph.constants;
    storages_ = graph.storages;
    for (StoragePtr& storage : storages_) {
      const auto copy = std::ranges::find(copied, storage.get());
      argument_.push_back(-1);
      if (copy == copied.end()) continue;
      const StoragePtr& original = given[static_cast<size_t>(copy - copied.begin())];
      const auto argument =
          std::ranges::find_if(arguments, [&](const Array& x) { return value_of(x).storage == original; });
      argument_.back() = static_cast<int>(argument - arguments.begin());
      storage = nullptr;  // comes with the call
    }

    std::unordered_map<const Node*, size_t> first_result;
    size_t count = 0;
    for (const Graph::Step& step : graph.steps)
      if (step.wanted) {
        first_result[step.node.get()] = count;
        count += step.node->outputs.size();
      }
    for (const Array& y : outputs) {
      Output output{.shape = y.shape(), .dtype = y.dtype()};
      const auto stand_in = std::ranges::find(stand_in_nodes, y.node().get());
      if (const auto made = first_result.find(y.node().get()); made != first_result.end()) {
        output.result = static_cast<int>(made->second + y.output());
        const Plan::Result& result = plan_->results()[static_cast<size_t>(output.result)];
        const int argument =
            result.storage < std::ssize(argument_) ? argument_[static_cast<size_t>(result.storage)] : -1;
        if (argument >= 0 && is_same(value_of(arguments[static_cast<size_t>(argument)]), output, result))
          output.result = -1, output.argument = argument;  // changed in place
      } else if (stand_in != stand_in_nodes.end())
        output.argument = static_cast<int>(stand_in - stand_in_nodes.begin());
      else
        output.captured = y;
      outputs_.push_back(std::move(output));
    }
  }

  std::vector<Array> run(const std::vector<Array>& arguments) {
    std::vector<StoragePtr> leaves = storages_;
    for (size_t i = 0; i < leaves.size(); ++i)
      if (argument_[i] >= 0) leaves[i] = value_of(arguments[static_cast<size_t>(argument_[i])]).storage;
    const std::vector<StoragePtr> storages =
        run_plan(*plan_, device_, std::move(leaves), constants_, memory_);
    std::vector<Array> results;
    for (const Output& output : outputs_) {
      if (output.result < 0) {
        results.push_back(output.captured ? output.captured
                                          : arguments[static_cast<size_t>(output.argument)]);
        continue;
      }
      const Plan::Result& made = plan_->results()[static_cast<size_t>(output.result)];
      results.push_back(leaf(
          {output.shape, output.dtype, storages[static_cast<size_t>(made.storage)], made.layout}, device_));
    }
    return results;
  }

 private:
  struct Output {
    Shape shape;
    DType dtype = DType::f32;
    int result = -1;    ///< of the plan, or
    int argument = -1;  ///< handed through, or changed in place, or
    Array captured = {};
  };

  static bool is_same(const Value& value, const Output& output, const Plan::Result& result) {
    return value.shape == output.shape && value.dtype == output.dtype && value.layout == result.layout;
  }

  static Device device_of(const std::vector<Array>& arguments, const StoragePtr& storage) {
    for (const Array& x : arguments)
      if (value_of(x).storage == storage) return x.device();
    return {};
  }

  Device device_;
  std::shared_ptr<Plan> plan_;
  std::vector<StoragePtr> storages_;  ///< that the plan reads; null where an argument's belongs
  std::vector<int> argument_;         ///< the first one of that storage
  std::vector<double> constants_;
  std::vector<Output> outputs_;
  Plan::Memory memory_;
};

}  // namespace

ArraysFunction compile(ArraysFunction f, std::vector<size_t> taken) {
  auto recordings = std::make_shared<std::map<std::vector<int64_t>, Recording>>();
  return [f = std::move(f), taken = std::move(taken), recordings](const std::vector<Array>& arguments) {
    if (!std::ranges::all_of(arguments, [](const Array& x) { return x.node()->ready(); })) eval(arguments);
    const std::vector<int64_t> key = signature(arguments);
    auto found = recordings->find(key);
    if (found == recordings->end()) found = recordings->emplace(key, Recording(f, arguments, taken)).first;
    return found->second.run(arguments);
  };
}

}  // namespace weft
