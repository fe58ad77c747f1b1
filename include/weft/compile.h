#pragma once

#include <functional>
#include <vector>

#include "weft/array.h"

namespace weft {

using ArraysFunction = std::function<std::vector<Array>(const std::vector<Array>&)>;

/// A function that is called once for each new combination of shapes, dtypes and devices of its arguments, to
/// record what it does; from then on only the recorded kernels run. What `f` captures is a constant, what it
/// does besides computing arrays happens only when it is recorded. The results are evaluated, and gradients
/// do not pass: compile value_and_grad(f), not f.
///
/// Arguments with an index in `taken` are given away: results may be in their memory (put_rows), and the
/// caller uses them no more. `f` must not evaluate anything that is made of them.
ArraysFunction compile(ArraysFunction f, std::vector<size_t> taken = {});

}  // namespace weft
