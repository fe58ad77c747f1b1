#pragma once

#include <string>

#include "array/host_tensor.h"

namespace weft::conform {

struct Difference {
  bool equal = true;
  std::string text;  ///< one line; empty when equal
};

/// The rule of OPS.md. Shape and dtype must be the same. Floats: |got - want| <= atol + rtol |want|, NaN
/// meets NaN, an infinity the same infinity; zero signs are not compared. Integers and bools are exact,
/// whatever the tolerances.
Difference compare(const HostTensor& got, const HostTensor& want, double rtol, double atol);

}  // namespace weft::conform
