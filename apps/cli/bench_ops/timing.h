#pragma once

#include <functional>

#include "backend/backend.h"

namespace weft::bench_ops {

/// Seconds of one step: the median over batches that end with a synchronize. A batch has as many steps as it
/// takes to hide what the synchronize costs. Work before that lets the clock rise: a GPU that idled, as it
/// does while its inputs are made, takes a while to leave its slowest one.
double median_seconds(Backend& backend, const std::function<void()>& step);

}  // namespace weft::bench_ops
