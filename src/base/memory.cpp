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

/// A number of /proc/meminfo, there in KiB.
std::optional<uint64_t> of_machine(const std::filesystem::path& root, std::string_view name) {
  const std::optional<uint64_t> number = number_of(read_text(root / "proc/meminfo").value_or(""), name);
  return number ? std::optional(*number << 10) : std::nullopt;
}

/// A number of this program's control group, where it has one that says so.
std::optional<uint64_t> of_group(const std::filesystem::path& root, const char* file, std::string_view name) {
  const std::string groups = read_text(root / "proc/self/cgroup").value_or("");
  constexpr std::string_view kOurs = "0::/";
  const size_t ours = groups.find(kOurs);
  if (ours == groups.npos) return std::nullopt;
  const size_t path = ours + kOurs.size();
  const std::filesystem::path folder =
      root / "sys/fs/cgroup" / groups.substr(path, groups.find('\n', path) - path);
  return number_of(read_text(folder / file).value_or(""), name);
}

/// What the control group leaves, where it has a limit: the files it has read can go.
std::optional<uint64_t> left_by_group(const std::filesystem::path& root) {
  const std::optional<uint64_t> most = of_group(root, "memory.max", ""),
                                used = of_group(root, "memory.current", "");
  if (!most || !used) return std::nullopt;
  const uint64_t held = *used - std::min(*used, of_group(root, "memory.stat", "inactive_file").value_or(0));
  return *most - std::min(*most, held);
}

}  // namespace

std::optional<uint64_t> total_memory(const std::filesystem::path& root) {
  const std::optional<uint64_t> all = of_machine(root, "MemTotal");
  return all ? std::optional(std::min(*all, of_group(root, "memory.max", "").value_or(*all))) : std::nullopt;
}

std::optional<uint64_t> free_memory(const std::filesystem::path& root) {
  const std::optional<uint64_t> memory = of_machine(root, "MemAvailable");
  if (!memory) return std::nullopt;
  return std::min(*memory, left_by_group(root).value_or(*memory)) + of_machine(root, "SwapFree").value_or(0);
}

}  // namespace weft
