#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace weft::jinja {

/// The tree of a template in valid UTF-8. Throws Failure with its line.
Body parse(std::string_view source);

}  // namespace weft::jinja
