#pragma once

#include "backend/attention.h"
#include "backend/webgpu/builder.h"

namespace weft::webgpu {

/// What cached_attention reads and writes. Blocks of a cache are unpacked: then its rows are those of the
/// keys.
struct CacheReads {
  const CachedProblem& problem;
  const Operand& q;                              ///< f32 (n, heads, dim)
  const Operand &keys, &values;                  ///< floats (rows, columns)
  const Operand* key_rows;                       ///< i32 (keys), or null: rows are 0, 1, ...
  const Operand &key_positions, &key_sequences;  ///< i32 (keys)
  const Operand &positions, &sequences;          ///< i32 (n)
  const Operand &sinks, &slopes;                 ///< f32 (heads), or without storage
  const Operand& out;                            ///< f32 (n, heads * value_dim); without storage where a
  const Step* joined = nullptr;                  ///< step goes on with it
};

/// Attention of few tokens, whose keys are split among workgroups: one dispatch where the last workgroup can
/// be known (Features::last_workgroup), else two. False, with nothing recorded, where the shapes or the
/// device do not allow it.
bool decode_cached(Context& context, const CacheReads& reads);

}  // namespace weft::webgpu
