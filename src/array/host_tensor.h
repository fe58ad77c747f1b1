#pragma once

#include <cstddef>
#include <vector>

#include "weft/dtype.h"
#include "weft/shape.h"

namespace weft {

/// Values in host memory, contiguous: what files hold and tests compare.
struct HostTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;
};

}  // namespace weft
