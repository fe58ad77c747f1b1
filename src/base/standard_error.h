#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace weft {

/// Writes to standard error. What cannot be written there is lost: it is never a reason to fail.
void to_stderr(std::string_view text) noexcept;

template <typename... Args>
void to_stderr(fmt::format_string<Args...> format, Args&&... args)
  requires(sizeof...(Args) > 0)
{
  to_stderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
