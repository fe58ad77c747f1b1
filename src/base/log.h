#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace weft {

/// Levels of WEFT_LOG. Log lines go to standard error; results never do.
enum class LogLevel { error, warn, info, debug };

LogLevel log_level();
void log_line(LogLevel level, const std::string& message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
