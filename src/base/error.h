#pragma once

#include <fmt/format.h>

#include "weft/error.h"

namespace weft {

/// `fail(ErrorKind::invalid, "[matmul] inner dimensions differ: {} x {}", a, b)`.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
