#include "backend/attention.h"

#include <algorithm>

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

}  // namespace weft
