#pragma once

#include <optional>

#include "array/attrs.h"
#include "array/layout.h"
#include "quant/quant.h"

namespace weft {

/// Sizes of q (.., h, t, d), k (.., hk, s, d) and v (.., hk, s, dv), and which keys a query sees: what the
/// kernels of both backends go by. The queries that share a key head are its rows, neighbours in time side by
/// side: row r is position r / group of query head key_head * group + r % group.
struct AttentionProblem {
  static constexpr int64_t kMaxDim = 256;  ///< of d and dv

  Shape batch;
  int64_t key_heads, group;  ///< h = key_heads * group
  int64_t queries, keys;     ///< t, s
  int64_t dim, value_dim;    ///< d, dv
  float scale, softcap;      ///< softcap 0: none
  int64_t back, ahead;       ///< query i sees keys i - back .. i + ahead

  /// `attrs` of the ops attention and attention_backward.
  AttentionProblem(const Layout& q, const Layout& k, const Layout& v, const Attrs& attrs);

  int64_t rows() const { return queries * group; }
  int64_t heads() const { return key_heads * group; }

  /// Keys that at least one of the rows [begin, end) sees; empty when none is.
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  Range keys_of(int64_t row_begin, int64_t row_end) const;
  Range rows_of(int64_t key_begin, int64_t key_end) const;  ///< the rows that see one of these keys
};

/// Sizes of cached_attention: q (n, heads, dim) over rows of a cache, which have key_heads * dim columns of
/// keys and key_heads * value_dim of values, floats or blocks of a type.
struct CachedProblem {
  int64_t tokens, heads, key_heads, dim, value_dim;
  std::optional<quant::Type> type;  ///< of blocks
  float scale, softcap;             ///< softcap 0: none
  int64_t window;                   ///< 0: none
  int64_t pitch;                    ///< keys of sequence s begin at s * pitch; 0: they may be anywhere
  bool causal;

  /// Throws ErrorKind::invalid when the shapes do not go together.
  CachedProblem(const Shape& q, const Shape& keys, const Shape& values, const Attrs& attrs);

  int64_t group() const { return heads / key_heads; }
  /// A token sees the keys of its sequence from one up to itself.
  bool in_order() const { return causal && pitch > 0; }

  /// Which of `count` keys tokens of a sequence may see that are at positions [lowest, highest].
  AttentionProblem::Range keys_of(int64_t sequence, int64_t lowest, int64_t highest, int64_t count) const;
};

}  // namespace weft
