#pragma once

#include <cstdint>
#include <optional>

namespace weft {

/// Bytes of memory and swap that programs can still have; nullopt where the system does not tell.
std::optional<uint64_t> free_memory();

}  // namespace weft
