#pragma once

#include <functional>
#include <vector>

#include "weft/array.h"

namespace weft {

/// Gradients of sum_j <output_grads[j], outputs[j]> with respect to `inputs`, as arrays of a graph: they can
/// be differentiated again. An empty entry of output_grads is zero. An input that no output depends on gets
/// zeros. Throws
/// `[grad] op has no gradient` when the way from an output to an input leads through such an op.
std::vector<Array> vjp(const std::vector<Array>& outputs, const std::vector<Array>& output_grads,
                       const std::vector<Array>& inputs);

using ArrayFunction = std::function<Array(const std::vector<Array>&)>;

/// Of a function with a scalar result: its value and the gradients of all arguments.
std::function<std::pair<Array, std::vector<Array>>(const std::vector<Array>&)> value_and_grad(
    ArrayFunction f);
std::function<std::vector<Array>(const std::vector<Array>&)> grad(ArrayFunction f);

/// x, seen as a constant by gradients.
Array stop_gradient(const Array& x);

}  // namespace weft
