#pragma once

#include "ops/op.h"

namespace weft {

/// The layout of a view op over its input; nullopt when the elements would have to move (some reshapes).
inline std::optional<Layout> view_layout(const Op& op, const Attrs& attrs, const Layout& input,
                                         const Shape& output) {
  return op.layout(attrs, input, output);
}

}  // namespace weft
