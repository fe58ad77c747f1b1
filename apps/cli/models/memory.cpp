#include "models/memory.h"

#include "base/memory.h"
#include "llm/room.h"

namespace weft::cli {

uint64_t cache_bytes(const llm::ModelFile& file, const llm::Config& config) {
  const quant::Traits& type = quant::traits(llm::usual_cache_type(file));
  int64_t elements = 0;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const llm::CacheColumns columns = llm::cache_columns(file, config, layer);
    elements += columns.keys + columns.values;
  }
  return static_cast<uint64_t>(elements * type.block_bytes / type.block_elements);
}

uint64_t needed_memory(const llm::ModelFile& file, const llm::Config& config, int64_t context) {
  return file.bytes() + static_cast<uint64_t>(context) * cache_bytes(file, config) +
         static_cast<uint64_t>(config.vocabulary) * sizeof(float);
}

std::optional<uint64_t> memory_of(const DeviceEntry& device) {
  const bool own = !device.is_cpu() && device.adapter.type != gpu::AdapterType::integrated &&
                   device.adapter.type != gpu::AdapterType::cpu;
  return own ? std::nullopt : total_memory();
}

}  // namespace weft::cli
