#pragma once

#include <span>

#include "array/layout.h"
#include "backend/elementwise.h"

namespace weft {

/// A fold of floats over some dims, as a program over rows.
struct FoldRows {
  Layout input, output;  ///< what is folded comes last; the output has one element for each row
  ElementwiseProgram program;

  FoldRows(const Layout& x, DType from, DType to, Fold fold, std::span<const int64_t> dims);
};

}  // namespace weft
