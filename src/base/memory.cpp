#include "base/memory.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/paths.h"

namespace weft {
namespace {

/// The number behind a name that begins a line.
std::optional<uint64_t> number_of(std::string_view lines, std::string_view name) {
  while (!lines.starts_with(name)) {
    const size_t end = lines.find('\n');
    if (end == lines.npos) return std::nullopt;
    lines.remove_prefix(end + 1);
  }
  lines.remove_prefix(std::min(lines.find_first_not_of(": ", name.size()), lines.size()));
  uint64_t number = 0;
  if (std::from_chars(lines.data(), lines.data() + lines.size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

/// What the control group leaves, where it has a limit: the files it has read can go.
std::optional<uint64_t> left_by_group(const std::filesystem::path& root) {
  const std::string groups = read_text(root / "proc/self/cgroup").value_or("");
  constexpr std::string_view kOurs = "0::/";
  const size_t ours = groups.find(kOurs);
  if (ours == groups.npos) return std::nullopt;
  const size_t path = ours + kOurs.size();
  const std::filesystem::path folder =
      root / "sys/fs/cgroup" / groups.substr(path, groups.find('\n', path) - path);
  const auto number = [&](const char* file, std::string_view name) {
    return number_of(read_text(folder / file).value_or(""), name);
  };
  const std::optional<uint64_t> most = number("memory.max", ""), used = number("memory.current", "");
  if (!most || !used) return std::nullopt;
  const uint64_t held = *used - std::min(*used, number("memory.stat", "inactive_file").value_or(0));
  return *most - std::min(*most, held);
}

}  // namespace

std::optional<uint64_t> free_memory(const std::filesystem::path& root) {
  const std::string lines = read_text(root / "proc/meminfo").value_or("");
  const std::optional<uint64_t> available = number_of(lines, "MemAvailable");
  if (!available) return std::nullopt;
  const uint64_t memory = *available << 10, swap = number_of(lines, "SwapFree").value_or(0) << 10;
  return std::min(memory, left_by_group(root).value_or(memory)) + swap;
}

}  // namespace weft
