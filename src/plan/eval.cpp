#include "plan/eval.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "array/host_tensor.h"
#include "array/node.h"
#include "backend/backend.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace weft {
namespace {

std::atomic<uint64_t> evals = 0, plans_built = 0, plans_reused = 0, steps_run = 0;

/// A device's plans by the structure of their graphs. The ones least used lately make room.
class PlanCache : public Backend::Kept {
 public:
  std::shared_ptr<Plan> find(const Backend& backend, const Graph& graph, bool often) {
    const std::scoped_lock lock(mutex_);
    const std::string key = graph.key + (often ? '+' : '-');
    if (const auto found = entries_.find(key); found != entries_.end()) {
      found->second.last_use = ++clock_;
      ++plans_reused;
      return found->second.plan;
    }
    auto plan = std::make_shared<Plan>(graph, backend, often);
    ++plans_built;
    if (entries_.size() >= kMaxPlans)
      entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& e) { return e.second.last_use; }));
    entries_[key] = {plan, ++clock_};
    return plan;
  }

 private:
  static constexpr size_t kMaxPlans = 256;
  struct Entry {
    std::shared_ptr<Plan> plan;
    uint64_t last_use = 0;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  uint64_t clock_ = 0;
};

void eval_on(const Device& device, std::span<const Array> arrays) {
  Graph graph(arrays);
  if (graph.steps.empty()) return;
  const std::shared_ptr<Plan> plan = plan_for(device, graph, false);
  Plan::Memory memory;
  const std::vector<StoragePtr> storages = run_plan(*plan, device, graph.storages, graph.constants, memory);

  auto result = plan->results().begin();
  for (const Graph::Step& step : graph.steps) {
    if (!step.wanted) continue;
    for (Value& value : step.node->outputs) {
      value.storage = storages[static_cast<size_t>(result->storage)];
      value.layout = result++->layout;
    }
    step.node->detached = !step.node->inputs.empty();
    step.node->inputs.clear();
  }
}

}  // namespace

EvalCounters eval_counters() {
  return {.evals = evals, .plans_built = plans_built, .plans_reused = plans_reused, .steps = steps_run};
}

std::shared_ptr<Plan> plan_for(const Device& device, const Graph& graph, bool often) {
  Backend::Kept& kept = device.backend().kept([] { return std::make_unique<PlanCache>(); });
  return dynamic_cast<PlanCache&>(kept).find(device.backend(), graph, often);
}

std::vector<StoragePtr> run_plan(Plan& plan, const Device& device, std::vector<StoragePtr> leaves,
                                 std::span<const double> constants, Plan::Memory& memory) {
  steps_run += plan.steps().size();
  return plan.run(device.backend(), std::move(leaves), constants, memory);
}

void eval(std::span<const Array> arrays) {
  ++evals;
  // One graph per device: no edge leads from one to another.
  std::vector<Array> rest(arrays.begin(), arrays.end());
  while (!rest.empty()) {
    const Device device = rest.front().device();
    const auto others =
        std::ranges::stable_partition(rest, [&](const Array& a) { return a.device() == device; });
    eval_on(device, std::span(rest.begin(), others.begin()));
    rest.erase(rest.begin(), others.begin());
  }
}

HostTensor Array::to_host() const {
  HostTensor host{dtype(), shape(), std::vector<std::byte>(static_cast<size_t>(size()) * size_of(dtype()))};
  read(host.bytes);
  return host;
}

void Array::read(std::span<std::byte> to) const {
  eval(*this);
  if (to.empty()) return;
  const Value& value = value_of(*this);
  StoragePtr storage = value.storage;
  Backend& backend = device().backend();
  if (!value.layout.is_contiguous()) {
    storage = backend.alloc(to.size(), "to_host");
    Step step{.kernel = "copy", .inputs = {{value.storage, value.dtype, value.layout}}};
    step.outputs.push_back({storage, value.dtype, Layout::contiguous(value.shape)});
    backend.run(std::span(&step, 1));
  }
  backend.read(storage, 0, to);
}

}  // namespace weft
