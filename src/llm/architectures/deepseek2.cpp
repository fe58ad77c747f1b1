// DeepSeek 2 and 3: keys and values are kept as one small vector per token, which all heads read.
#include <cmath>

#include "base/error.h"
#include "llm/architecture.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void deepseek2(Config& c, const ModelFile& file) {
  // Files that have keys and values apart describe the small vector first, heads under names of their own.
  c.head_dim = file.integer("attention.key_length_mla").value_or(c.head_dim);
  c.value_dim = file.integer("attention.value_length_mla").value_or(c.value_dim);
  RopeConfig& rope = c.ropes[0];
  if (c.head_dim <= rope.dims || c.value_dim <= 0 || c.head_dim > 1 << 20 || c.value_dim > 1 << 20)
    fail(ErrorKind::io, "[model] {}: heads of {} elements, {} of them turn; values of {}", file.name,
         c.head_dim, rope.dims, c.value_dim);
  rope.neighbours = file.flag("rope.interleave").value_or(true);
  c.attention_scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (const double grows = file.number("rope.scaling.yarn_log_multiplier").value_or(0);
      grows > 0 && rope.scaling == "yarn" && rope.factor > 1) {
    const double magnitude = 1 + grows * std::log(rope.factor);  // of scores, instead of queries and keys
    c.attention_scale *= magnitude * magnitude;
    rope.has_own_magnitude = true;
  }
  c.experts.normalize = file.flag("expert_weights_norm").value_or(false);
}

/// What turns a head's query into one for the small vectors, and a mixture of those into the head's value:
/// (heads, rank, key) and (heads, rank, value).
struct Unfolding {
  Array keys, values;
};

Unfolding unfolding(const Layer& l, int64_t rank, int64_t key, int64_t value) {
  const int64_t heads = l.config.heads;
  if (l.has("attn_k_b"))
    return {l.vector("attn_k_b.weight", {heads, rank, key}),
            transpose(l.vector("attn_v_b.weight", {heads, value, rank}), 1, 2)};
  const Array both =
      reshape(l.vector("attn_kv_b.weight", {heads * (key + value), rank}), {heads, key + value, rank});
  return {transpose(slice_dim(both, 1, 0, key), 1, 2), transpose(slice_dim(both, 1, key, key + value), 1, 2)};
}

Array latent_attention(const Layer& l, const Array& x) {
  const Config& c = l.pass.config();
  const int64_t n = x.shape(0), heads = l.config.heads, turning = c.ropes[0].dims, key = c.head_dim - turning,
                rank = l.pass.weights().file().rows(l.name("attn_kv_a_norm.weight"), 1);
  Array q = x;
  if (l.has("attn_q_a")) {
    const int64_t small = l.pass.weights().file().rows(l.name("attn_q_a.weight"));
    q = l.product("attn_q_b", l.norm("attn_q_a_norm", l.product("attn_q_a", x, small)), heads * c.head_dim);
  } else {
    q = l.product("attn_q", x, heads * c.head_dim);
  }
  const std::vector<Array> query = split(reshape(q, {n, heads, c.head_dim}), {key, turning}, 2),
                           shared = split(l.product("attn_kv_a_mqa", x, rank + turning), {rank, turning}, 1);
  Heads turned{query[1], reshape(shared[1], {n, 1, turning}), {}};
  l.turn(turned);

  // Scores with q (key . vector) are scores with (q key) . vector, so that only the vector is kept.
  const Unfolding unfold = unfolding(l, rank, key, c.value_dim);
  const Array wide = matmul(transpose(query[0], 0, 1), transpose(unfold.keys, 1, 2));  // (heads, n, rank)
  const Array vector = reshape(l.norm("attn_kv_a_norm", shared[0]), {n, 1, rank});
  const Heads all{cat({transpose(wide, 0, 1), turned.q}, 2), cat({vector, turned.k}, 2), vector};
  const Array mixed = reshape(l.attend(all, l.form()), {n, heads, rank});
  const Array y = matmul(transpose(mixed, 0, 1), unfold.values);  // (heads, n, value)
  return l.product("attn_output", reshape(transpose(y, 0, 1), {n, heads * c.value_dim}), c.width);
}

Array forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    x = x + latent_attention(l, l.norm("attn_norm", x));
    const Array y = l.norm("ffn_norm", x);
    x = x + (l.config.has_experts ? expert_feed_forward(l, y) : feed_forward(l, y));
  }
  return p.logits(x);
}

}  // namespace

std::vector<Architecture> deepseek2_architectures() {
  return {{"deepseek2", deepseek2, forward}};
}

}  // namespace weft::llm
