#pragma once

#include <cstdint>
#include <optional>

#include "backend/select.h"
#include "llm/config.h"
#include "llm/model_file.h"

/// The memory that a model needs, and the memory that there is.
namespace weft::cli {

/// Bytes of keys and values for one token.
uint64_t cache_bytes(const llm::ModelFile& file, const llm::Config& config);

/// Bytes of weights, keys, values and logits.
uint64_t needed_memory(const llm::ModelFile& file, const llm::Config& config, int64_t context);

/// Bytes that this device has; nullopt where nobody tells: WebGPU does not say what a graphics card has of
/// its own. Every other device computes in the memory of the machine.
std::optional<uint64_t> memory_of(const DeviceEntry& device);

}  // namespace weft::cli
