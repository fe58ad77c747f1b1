#include "base/memory.h"

#include <charconv>
#include <string>

#include "base/paths.h"

namespace weft {
namespace {

/// Of a line "NAME:   123 kB" in /proc/meminfo.
std::optional<uint64_t> bytes_of(const std::string& lines, const std::string& name) {
  const size_t line = lines.find(name + ":");
  if (line == std::string::npos) return std::nullopt;
  const size_t number = lines.find_first_of("0123456789", line);
  uint64_t kilobytes = 0;
  if (number == std::string::npos ||
      std::from_chars(lines.data() + number, lines.data() + lines.size(), kilobytes).ec != std::errc())
    return std::nullopt;
  return kilobytes << 10;
}

}  // namespace

std::optional<uint64_t> free_memory() {
  const std::string lines = read_text("/proc/meminfo").value_or("");
  const std::optional<uint64_t> memory = bytes_of(lines, "MemAvailable");
  if (!memory) return std::nullopt;
  return *memory + bytes_of(lines, "SwapFree").value_or(0);
}

}  // namespace weft
