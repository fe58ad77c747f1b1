#pragma once

#include <set>
#include <vector>

#include "plan/plan.h"

namespace weft {

/// Products of few rows go on with what follows them: a workgroup that has computed a tile of columns also
/// runs the steps behind the product that need nothing else of it. Sums over rows that only the product's
/// epilogue needs come before it, in every workgroup, and so do the codes of its input where the backend says
/// so. Storages are still the values that own them; `kept`: those that are wanted.
void join_steps(std::vector<Plan::Step>& steps, const std::set<int>& kept, const Backend& backend);

}  // namespace weft
