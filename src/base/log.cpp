#include "base/log.h"

#include "base/env.h"
#include "base/standard_error.h"

namespace weft {

LogLevel log_level() {
  static const LogLevel level = [] {
    const std::string value = env::get("WEFT_LOG").value_or("warn");
    if (value == "error") return LogLevel::error;
    if (value == "info") return LogLevel::info;
    if (value == "debug") return LogLevel::debug;
    return LogLevel::warn;
  }();
  return level;
}

void log_line(LogLevel level, const std::string& message) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  to_stderr("weft: {}: {}\n", kNames[static_cast<int>(level)], message);
}

}  // namespace weft
