#pragma once

#include "weft/array.h"

/// Functions on arrays. Every op of docs/ops.md can also be called by name with apply() of src/ops/op.h;
/// these are the ones that programs use by hand.
namespace weft {

Array matmul(const Array& a, const Array& b);
Array softmax(const Array& x, int64_t dim);
Array tanh(const Array& x);
Array square(const Array& x);
Array sum(const Array& x);   ///< of all elements, a scalar
Array mean(const Array& x);  ///< of all elements, a scalar

}  // namespace weft
