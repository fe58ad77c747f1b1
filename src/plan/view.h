#pragma once

#include <optional>

#include "array/attrs.h"
#include "array/layout.h"
#include "ops/op.h"

namespace weft {

/// The layout of a view op over its input; nullopt when the elements would have to move (some reshapes).
std::optional<Layout> view_layout(const Op& op, const Attrs& attrs, const Layout& input, const Shape& output);

}  // namespace weft
