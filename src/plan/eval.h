#pragma once

#include <cstdint>

namespace weft {

/// What evaluation did so far, for tests.
struct EvalCounters {
  uint64_t evals = 0;
  uint64_t plans_built = 0, plans_reused = 0;
  uint64_t steps = 0;  ///< kernels that ran
};
EvalCounters eval_counters();

}  // namespace weft
