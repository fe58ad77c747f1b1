#include "llm/room.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"

namespace weft::llm {
namespace {

constexpr double kShare = 0.95;  // of what is free; passes need memory to work in
constexpr double kGiB = 1 << 30;

/// `tokens` of `each` bytes, where there are `there`, of which `what` says more.
void check(const State& state, double tokens, double each, double there, const std::string& what) {
  if (tokens * each <= there) return;
  const auto fit = static_cast<int64_t>(there / each) / kPageRows * kPageRows;
  fail(ErrorKind::memory, "[cache] a context of {} tokens needs {:.3g} GiB; {:.3g} GiB are {}{}",
       state.context, tokens * each / kGiB, there / kGiB, what,
       fit > 0 && state.sequences == 1 ? fmt::format("; -c {} would fit", fit) : "");
}

/// Bytes of the tables of a position.
double table_bytes(const Config& config) {
  double bytes = 0;
  for (const RopeConfig& rope : config.ropes)
    if (rope.scaling != "dynamic")
      bytes += static_cast<double>(2 * rope.dims) * sizeof(float) * (rope.long_divisors.empty() ? 1 : 2);
  return bytes;
}

}  // namespace

CacheColumns cache_columns(const ModelFile& file, const Config& config, size_t layer) {
  const LayerConfig& l = config.layers[layer];
  if (l.recurrent) return {};
  const auto latent = file.tensors.find(fmt::format("blk.{}.attn_kv_a_norm.weight", layer));
  if (latent != file.tensors.end()) {
    const int64_t rank = element_count(latent->second.shape);
    return {rank + config.ropes[0].dims, rank};
  }
  return {l.kv_heads * config.head_dim, l.kv_heads * config.value_dim};
}

quant::Type usual_cache_type(const ModelFile& file) {
  return file.tensor("token_embd.weight").type == quant::Type::f32 ? quant::Type::f32 : quant::Type::f16;
}

void check_room(const State& state) {
  const Config& config = state.config;
  const ModelFile& file = state.weights.file();
  const quant::Traits& type = quant::traits(state.cache_type);
  const auto rows = static_cast<double>(state.rows);
  const auto bytes = [&](int64_t elements) {
    return static_cast<double>(elements) * type.block_bytes / type.block_elements;
  };
  double each = 0, weights = 0;  // in the host's memory
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const CacheColumns columns = cache_columns(file, config, i);
    const Device& device = state.devices[i];
    // A GPU tells what an array may have, and no more.
    check(state, rows, bytes(std::max(columns.keys, columns.values)),
          static_cast<double>(device.backend().most_bytes()), "the most for an array of " + device.name());
    if (device != Device()) continue;
    each += bytes(columns.keys + columns.values);
    weights += static_cast<double>(file.bytes()) / static_cast<double>(config.layers.size());
  }
  each += table_bytes(config) * static_cast<double>(state.context) / rows;  // made by the host for all
  if (const std::optional<uint64_t> free = free_memory()) {
    const double all = static_cast<double>(*free) * kShare;
    const double there =
        weights < all ? all - weights : all;  // no context is to blame for weights that do not fit
    check(state, rows, each, there, "free");
  }
}

}  // namespace weft::llm
