#pragma once

#include <span>
#include <vector>

#include "weft/array.h"

namespace weft {

/// Kernels that ran so far, for tests.
struct EvalCounters {
  uint64_t evals = 0, steps = 0, fused_ops = 0;
};
EvalCounters eval_counters();

}  // namespace weft
