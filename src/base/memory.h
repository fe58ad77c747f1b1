#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace weft {

/// Bytes of memory that the machine has, or the limit of this program's control group; nullopt where the
/// system does not tell. `root`: where /proc and /sys are.
std::optional<uint64_t> total_memory(const std::filesystem::path& root = "/");

/// Bytes of memory and swap that this program can still have, also under the limit of its control group;
/// nullopt where the system does not tell.
std::optional<uint64_t> free_memory(const std::filesystem::path& root = "/");

}  // namespace weft
