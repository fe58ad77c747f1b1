#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace weft {

/// Bytes of memory and swap that this program can still have, also under the limit of its control group;
/// nullopt where the system does not tell. `root`: where /proc and /sys are.
std::optional<uint64_t> free_memory(const std::filesystem::path& root = "/");

}  // namespace weft
