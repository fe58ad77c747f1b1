#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/graph.h"
#include "plan/plan.h"

namespace weft {

/// What evaluation did so far, for tests.
struct EvalCounters {
  uint64_t evals = 0;
  uint64_t plans_built = 0, plans_reused = 0;
  uint64_t steps = 0;  ///< kernels that ran
};
EvalCounters eval_counters();

/// The plan for graphs of this structure on a device, made now or kept from before. `often`:
/// Backend::prepare().
std::shared_ptr<Plan> plan_for(const Device& device, const Graph& graph, bool often);

/// Plan::run, counted.
std::vector<StoragePtr> run_plan(Plan& plan, const Device& device, std::vector<StoragePtr> leaves,
                                 std::span<const double> constants, Plan::Memory& memory);

}  // namespace weft
