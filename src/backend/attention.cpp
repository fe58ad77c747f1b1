#include "backend/attention.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

AttentionProblem::AttentionProblem(const Layout& q, const Layout& k, const Layout& v, const Attrs& attrs)
    : batch(q.shape.begin(), q.shape.end() - 3) {
  const size_t rank = q.shape.size();
  key_heads = k.shape[rank - 3];
  group = q.shape[rank - 3] / key_heads;
  queries = q.shape[rank - 2];
  keys = k.shape[rank - 2];
  dim = q.shape[rank - 1];
  value_dim = v.shape[rank - 1];
  scale = static_cast<float>(attrs.number("scale"));
  softcap = attrs.has("softcap") ? static_cast<float>(attrs.number("softcap")) : 0;
  const int64_t all = std::max(queries, keys);
  back = ahead = attrs.has("window") ? std::clamp<int64_t>(attrs.integer("window") - 1, -1, all) : all;
  if (attrs.flag("causal")) ahead = std::min<int64_t>(ahead, 0);
}

AttentionProblem::Range AttentionProblem::keys_of(int64_t row_begin, int64_t row_end) const {
  const int64_t begin = std::max<int64_t>(0, row_begin / group - back);
  const int64_t end = std::min(keys, (row_end - 1) / group + ahead + 1);
  return {begin, std::max(begin, end)};
}

AttentionProblem::Range AttentionProblem::rows_of(int64_t key_begin, int64_t key_end) const {
  const int64_t begin = std::max<int64_t>(0, key_begin - ahead);
  const int64_t end = std::min(queries, key_end - 1 + back + 1);
  return {begin * group, std::max(begin, end) * group};
}

CachedProblem::CachedProblem(const Shape& q, const Shape& keys, const Shape& values, const Attrs& attrs)
    : tokens(q[0]),
      heads(q[1]),
      dim(q[2]),
      scale(static_cast<float>(attrs.number("scale"))),
      softcap(static_cast<float>(attrs.number("softcap"))),
      window(attrs.integer("window")),
      pitch(attrs.integer("pitch")),
      causal(attrs.flag("causal")) {
  if (!attrs.text("type").empty()) type = quant::type_from_name(attrs.text("type"));
  const int64_t elements = type ? quant::traits(*type).block_elements : 1,
                size = type ? quant::traits(*type).block_bytes : 1;  // of a block
  key_heads = keys[1] / size * elements / dim;
  value_dim = key_heads > 0 ? values[1] / size * elements / key_heads : 0;
  if (key_heads == 0 || heads % key_heads != 0 || key_heads * dim * size != keys[1] * elements ||
      key_heads * value_dim * size != values[1] * elements)
    fail(ErrorKind::invalid, "[cached_attention] q {}, keys {} and values {}{} do not go together",
         to_string(q), to_string(keys), to_string(values), type ? " in blocks" : "");
  if (type && (dim % elements != 0 || value_dim % elements != 0))
    fail(ErrorKind::unsupported,
         "[cached_attention] heads of {} and {} columns are not whole {} blocks of {}", dim, value_dim,
         quant::traits(*type).name, elements);
}

AttentionProblem::Range CachedProblem::keys_of(int64_t sequence, int64_t lowest, int64_t highest,
                                               int64_t count) const {
  if (pitch == 0) return {0, count};
  const int64_t first = std::clamp<int64_t>(sequence * pitch, 0, count), end = std::min(first + pitch, count);
  return {window > 0 ? std::clamp(first + lowest - window + 1, first, end) : first,
          causal ? std::clamp(first + highest + 1, first, end) : end};
}

}  // namespace weft
