#pragma once

#include <functional>
#include <vector>

#include "weft/array.h"

namespace weft {

/// Gradients of sum_j <output_grads[j], outputs[j]> with respect to `inputs`, as arrays of a graph: they can
/// be differentiated again. An empty entry of output_grads is zero.
///
/// An input that no output is made of gets zeros. No gradient is lost on the way: an op that has none is an
/// error that names it. Indices and truths (argmax, sort's indices, comparisons) have no gradient, and what
/// is made with their help is differentiated as if they were constant; an input that is used through them
/// alone is an error too.
std::vector<Array> vjp(const std::vector<Array>& outputs, const std::vector<Array>& output_grads,
                       const std::vector<Array>& inputs);

using ArrayFunction = std::function<Array(const std::vector<Array>&)>;

/// Of a function with a scalar result: its value and the gradients of all arguments.
std::function<std::pair<Array, std::vector<Array>>(const std::vector<Array>&)> value_and_grad(
    ArrayFunction f);
std::function<std::vector<Array>(const std::vector<Array>&)> grad(ArrayFunction f);

/// The value of f, and how it changes when the arguments change by `tangents`.
std::pair<Array, Array> jvp(const ArrayFunction& f, const std::vector<Array>& arguments,
                            const std::vector<Array>& tangents);

/// f, which keeps nothing for its gradient but its arguments and what it captures, and is computed again when
/// the gradient needs it: memory for time. f has to do the same both times; random numbers are the same.
ArrayFunction checkpoint(ArrayFunction f);

/// From (arguments, result, gradient of the result) to a gradient per argument.
using CustomVjp = std::function<std::vector<Array>(const std::vector<Array>& arguments, const Array& result,
                                                   const Array& result_grad)>;
/// f, differentiated by `backward`. f gets what it needs as arguments: a wanted gradient of an array that it
/// captures is an error.
ArrayFunction custom_gradient(ArrayFunction f, CustomVjp backward);

/// x, seen as a constant by gradients.
Array stop_gradient(const Array& x);

}  // namespace weft
