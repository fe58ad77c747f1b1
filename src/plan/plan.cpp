#include "plan/plan.h"

#include <algorithm>
#include <unordered_map>

#include "ops/op.h"
#include "plan/group.h"
#include "plan/join.h"

namespace weft {
namespace {

/// Where each value would be if it were in memory: results in row-major order, views in what they look at.
std::vector<Spot> spots_of(const Graph& graph) {
  std::vector<Spot> spots;
  for (const Graph::Leaf& leaf : graph.leaves) spots.push_back({static_cast<int>(spots.size()), leaf.layout});
  for (const Graph::Step& step : graph.steps) {
    const Op& op = *step.node->op;
    if (op.kind == OpKind::view) {
      const Spot& input = spots[static_cast<size_t>(step.inputs[0])];
      if (auto layout = op.layout(step.node->attrs, input.layout, step.node->outputs[0].shape)) {
        spots.push_back({input.owner, *std::move(layout)});
        continue;
      }
    }
    for (const Value& output : step.node->outputs)
      spots.push_back({static_cast<int>(spots.size()), Layout::contiguous(output.shape)});
    if (step.takes_input)
      spots[static_cast<size_t>(step.first)].owner = spots[static_cast<size_t>(step.inputs[0])].owner;
  }
  return spots;
}

/// Cuts a graph into kernels, from its ends to its beginnings, so that a producer is asked for when it is
/// known who needs it.
class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph), spots_(spots_of(graph)), needed_(graph.steps.size()), stored_(graph.steps.size()) {
    for (size_t s = graph.steps.size(); s-- > 0;)
      if ((needed_[s] || graph.steps[s].wanted) && !stored_[s]) schedule(static_cast<int>(s));
    std::ranges::reverse(steps);
  }

  const std::vector<Spot>& spots() const { return spots_; }
  std::vector<Plan::Step> steps;  ///< storages are the values that own them

 private:
  void need(int value) {
    if (value >= 0 && graph_.producer(value) >= 0)
      needed_[static_cast<size_t>(graph_.producer(value))] = true;
  }

  Plan::Operand operand(int value) const {
    if (value < 0) return {};
    const Spot& spot = spots_[static_cast<size_t>(value)];
    const DType dtype = graph_.producer(value) < 0 ? graph_.leaves[static_cast<size_t>(value)].dtype
                                                   : graph_.value(value).dtype;
    return {spot.owner, dtype, spot.layout};
  }

  void schedule(int s) {
    const Graph::Step& step = graph_.steps[static_cast<size_t>(s)];
    const Op& op = *step.node->op;
    if (op.kind == OpKind::elementwise || Group::is_fold(step)) {
      Group group(graph_, spots_, s);
      group.grow();
      for (int value : group.loads()) need(value);
      for (int value : group.stores()) stored_[static_cast<size_t>(graph_.producer(value))] = true;
      steps.push_back(group.lowered());
      return;
    }
    for (int value : step.inputs) need(value);
    if (op.kind == OpKind::view) {
      if (spots_[static_cast<size_t>(step.first)].owner == step.first) copy(step);
      return;
    }
    Plan::Step made{.kernel = op.name,
                    .inputs = {},
                    .outputs = {},
                    .attrs = step.node->attrs,
                    .is_product = op.is_product};
    for (int value : step.inputs) made.inputs.push_back(operand(value));
    for (size_t i = 0; i < step.node->outputs.size(); ++i)
      made.outputs.push_back(operand(step.first + static_cast<int>(i)));
    if (op.in_place) made.inputs[0] = {};
    steps.push_back(std::move(made));
    if (op.in_place && !step.takes_input) copy(step);  // before it: steps are put down from the end
  }

  /// Input 0 to row-major order, in the memory of output 0: what an op in place changes, and what a reshape
  /// that fails to be a view becomes one of.
  void copy(const Graph::Step& step) {
    Plan::Step made{.kernel = "copy", .inputs = {operand(step.inputs[0])}, .outputs = {operand(step.first)}};
    made.outputs[0].layout = Layout::contiguous(made.inputs[0].layout.shape);
    steps.push_back(std::move(made));
  }

  const Graph& graph_;
  std::vector<Spot> spots_;
  std::vector<bool> needed_, stored_;
};

/// Steps on real storage.
std::vector<Step> bound(const std::vector<Plan::Step>& steps, std::span<const StoragePtr> storages) {
  const auto operands = [&](const std::vector<Plan::Operand>& from) {
    std::vector<Operand> result;
    for (const Plan::Operand& o : from)
      result.push_back(
          {o.storage < 0 ? nullptr : storages[static_cast<size_t>(o.storage)], o.dtype, o.layout, o.tile});
    return result;
  };
  std::vector<Step> result;
  for (const Plan::Step& step : steps)
    result.push_back({.kernel = step.kernel,
                      .inputs = operands(step.inputs),
                      .outputs = operands(step.outputs),
                      .attrs = &step.attrs,
                      .program = step.program ? &*step.program : nullptr,
                      .tiles = step.tiles,
                      .before = bound(step.before, storages),
                      .after = bound(step.after, storages)});
  return result;
}

uint64_t bytes_of(const Value& value) {
  return std::max<uint64_t>(static_cast<uint64_t>(element_count(value.shape)) * size_of(value.dtype), 1);
}

}  // namespace

void Plan::Step::each_operand(const std::function<void(Operand&, bool is_output)>& visit) {
  for (Step& step : before) step.each_operand(visit);
  for (Operand& input : inputs) visit(input, false);
  for (Operand& output : outputs) visit(output, true);
  for (Step& step : after) step.each_operand(visit);
}

Plan::Plan(const Graph& graph, const Backend& backend, bool often)
    : leaves_(graph.storages.size()), often_(often) {
  Scheduler scheduler(graph);
  steps_ = std::move(scheduler.steps);
  if (backend.joined_rows() > 0) {
    std::set<int> kept;
    for (const Graph::Step& step : graph.steps)
      for (size_t i = 0; step.wanted && i < step.node->outputs.size(); ++i)
        kept.insert(scheduler.spots()[static_cast<size_t>(step.first) + i].owner);
    join_steps(steps_, kept, backend);
  }

  std::unordered_map<int, int> storage_of;  // of a value that owns memory
  for (size_t v = 0; v < graph.leaves.size(); ++v) storage_of[static_cast<int>(v)] = graph.leaves[v].storage;
  for (Step& step : steps_) {
    step.each_operand([&](Operand& operand, bool is_output) {
      if (!is_output || operand.storage < 0) return;
      if (storage_of.contains(operand.storage)) return;  // written to before, or an input that is taken
      storage_of[operand.storage] = static_cast<int>(leaves_ + sizes_.size());
      sizes_.push_back(bytes_of(graph.value(operand.storage)));
    });
    step.each_operand([&](Operand& operand, bool) {
      if (operand.storage >= 0) operand.storage = storage_of.at(operand.storage);
    });
  }
  for (const Graph::Step& step : graph.steps) {
    if (!step.wanted) continue;
    for (size_t i = 0; i < step.node->outputs.size(); ++i) {
      const Spot& spot = scheduler.spots()[static_cast<size_t>(step.first) + i];
      results_.push_back({storage_of.at(spot.owner), spot.layout});
    }
  }
  share_memory();
}

/// Temporaries whose lives do not overlap share a storage: the kernels run one after the other.
void Plan::share_memory() {
  std::vector<size_t> last_use(sizes_.size(), 0);
  std::vector<bool> kept(sizes_.size(), false);
  for (size_t s = 0; s < steps_.size(); ++s)
    steps_[s].each_operand([&](Operand& operand, bool) {
      if (operand.storage >= static_cast<int>(leaves_))
        last_use[static_cast<size_t>(operand.storage) - leaves_] = s;
    });
  for (const Result& result : results_)
    if (result.storage >= static_cast<int>(leaves_))
      kept[static_cast<size_t>(result.storage) - leaves_] = true;

  std::vector<uint64_t> slots;  // bytes
  std::vector<size_t> slot_of(sizes_.size(), 0), free;
  const auto take = [&](uint64_t bytes) {
    // The smallest that is large enough, else the largest, made larger.
    auto best = free.end();
    for (auto slot = free.begin(); slot != free.end(); ++slot) {
      const bool enough = slots[*slot] >= bytes, best_enough = best != free.end() && slots[*best] >= bytes;
      if (best == free.end() || (enough && (!best_enough || slots[*slot] < slots[*best])) ||
          (!enough && !best_enough && slots[*slot] > slots[*best]))
        best = slot;
    }
    if (best == free.end()) {
      slots.push_back(bytes);
      return slots.size() - 1;
    }
    const size_t slot = *best;
    free.erase(best);
    slots[slot] = std::max(slots[slot], bytes);
    return slot;
  };
  std::vector<bool> placed(sizes_.size(), false);
  for (size_t s = 0; s < steps_.size(); ++s) {
    steps_[s].each_operand([&](Operand& output, bool is_output) {
      if (!is_output || output.storage < static_cast<int>(leaves_)) return;
      const size_t made = static_cast<size_t>(output.storage) - leaves_;
      if (placed[made]) return;
      placed[made] = true;
      if (kept[made])
        slots.push_back(sizes_[made]), slot_of[made] = slots.size() - 1;
      else
        slot_of[made] = take(sizes_[made]);
    });
    std::vector<size_t> over;  // storages that nobody needs after this step
    steps_[s].each_operand([&](Operand& operand, bool) {
      if (operand.storage < static_cast<int>(leaves_)) return;
      const size_t made = static_cast<size_t>(operand.storage) - leaves_;
      if (last_use[made] == s && !kept[made] && std::ranges::find(over, made) == over.end())
        over.push_back(made);
    });
    for (size_t made : over) free.push_back(slot_of[made]);
  }

  const auto moved = [&](int& storage) {
    if (storage >= static_cast<int>(leaves_))
      storage = static_cast<int>(leaves_ + slot_of[static_cast<size_t>(storage) - leaves_]);
  };
  for (Step& step : steps_) step.each_operand([&](Operand& operand, bool) { moved(operand.storage); });
  for (Result& result : results_) moved(result.storage);
  sizes_ = std::move(slots);
}

std::vector<StoragePtr> Plan::run(Backend& backend, std::vector<StoragePtr> storages,
                                  std::span<const double> constants, Memory& memory) {
  const std::lock_guard lock(running_);
  const auto add = [&](uint64_t bytes, std::string_view label) {
    const size_t place = storages.size() - leaves_;
    if (place == memory.size()) memory.emplace_back();
    std::vector<StoragePtr>& known = memory[place];
    auto free = std::ranges::find_if(known, [](const StoragePtr& s) { return s.use_count() == 1; });
    if (free == known.end()) free = known.insert(free, backend.alloc(bytes, label));
    storages.push_back(*free);
  };
  for (uint64_t bytes : sizes_) add(bytes, "array");
  if (!prepared_) prepared_ = backend.prepare(bound(steps_, storages), storages, often_);
  for (uint64_t bytes : prepared_->scratch) add(bytes, "scratch");
  if (!steps_.empty()) backend.run(*prepared_, storages, constants);
  return storages;
}

}  // namespace weft
