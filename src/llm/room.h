#pragma once

#include "llm/pass.h"

namespace weft::llm {

/// Rows are counted in 32 bits.
inline constexpr int64_t kMostRows = (int64_t{1} << 31) - 2 * kPageRows;

/// Elements that a layer keeps of each token; none for a recurrent one, whose state does not grow.
struct CacheColumns {
  int64_t keys = 0, values = 0;
};
CacheColumns cache_columns(const ModelFile& file, const Config& config, size_t layer);

/// Of keys and values where nobody asks for another: f32 where the model's weights are, else f16.
quant::Type usual_cache_type(const ModelFile& file);

/// Throws ErrorKind::memory where caches and tables of positions are more than the devices have for them, as
/// far as that is known: before anything of a model is loaded.
void check_room(const State& state);

}  // namespace weft::llm
