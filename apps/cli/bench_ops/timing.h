#pragma once

#include <functional>
#include <utility>

#include "backend/backend.h"

namespace weft::bench_ops {

/// Seconds of one step: the median over batches that end with a synchronize. A batch has as many steps as it
/// takes to hide what the synchronize costs. Work before that lets the clock rise: a GPU that idled, as it
/// does while its inputs are made, takes a while to leave its slowest one.
double median_seconds(Backend& backend, const std::function<void()>& step);

/// Of two steps whose batches take turns: those of the turn with the median ratio. Machines shared with
/// others change between 50 and 80 GB/s from one second to the next, which meets both then.
std::pair<double, double> median_turn(Backend& backend, const std::function<void()>& first,
                                      const std::function<void()>& second);

}  // namespace weft::bench_ops
