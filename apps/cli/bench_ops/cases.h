#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/array.h"

namespace weft::bench_ops {

struct Input {
  Shape shape;
  DType dtype = DType::f32;
  int64_t below = 0;  ///< i32: random numbers from 0 on, below this one; floats are in -1..1
};

/// One row of the table.
struct Case {
  std::string name;  ///< "softmax f32 4096x4096"
  std::vector<Input> inputs;
  std::function<std::vector<Array>(const std::vector<Array>&)> compute;
  double flops = 0;  ///< 0: bound by memory
  double bytes = 0;  ///< 0: all inputs and outputs once
};

/// `large`: for GPUs, whose caches and launch costs hide what smaller arrays would show.
std::vector<Case> cases(bool large);

}  // namespace weft::bench_ops
