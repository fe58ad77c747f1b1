// Qwen3-Next and Qwen3.5: linear attention by the gated delta rule in most layers, gated attention in the
// others.
#include <cmath>

#include "base/error.h"
#include "io/safetensors.h"
#include "llm/architecture.h"
#include "llm/recurrent.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void qwen3next(Config& c, const ModelFile& file) {
  LinearAttention& a = c.linear_attention;
  a.key_heads = file.required("ssm.group_count");
  a.value_heads = file.required("ssm.time_step_rank");
  a.key_dim = file.required("ssm.state_size");
  a.kernel = file.required("ssm.conv_kernel");
  const int64_t inner = file.required("ssm.inner_size");
  a.value_dim = inner / a.value_heads;
  constexpr int64_t kMost = 1 << 20;
  if (a.value_heads % a.key_heads != 0 || inner % a.value_heads != 0 || inner > kMost || a.key_dim > kMost ||
      a.kernel < 2 || a.kernel > kMost)
    fail(ErrorKind::io, "[model] {}: linear attention of {} and {} heads, {} and {} elements, kernel {}",
         file.name, a.key_heads, a.value_heads, a.key_dim, inner, a.kernel);
  if (const std::string name = file.text("hidden_activation").value_or("silu"); name != "silu")
    fail(ErrorKind::unsupported, "[model] {}: linear attention has 'silu' as its activation, not '{}'",
         file.name, one_line(name));
  // Blocks behind the last layer guess further tokens; they are not run.
  const int64_t guessing = file.integer("nextn_predict_layers").value_or(0);
  if (guessing < 0 || guessing >= std::ssize(c.layers))
    fail(ErrorKind::io, "[model] {}: 'nextn_predict_layers' is {}", file.name, guessing);
  c.layers.resize(c.layers.size() - static_cast<size_t>(guessing));
  for (size_t i = 0; i < c.layers.size(); ++i)
    c.layers[i].recurrent = file.has(fmt::format("blk.{}.ssm_conv1d.weight", i));
}

/// Files of Qwen3.5 have value heads in turn: head i goes with key head i modulo their number.
void qwen35(Config& c, const ModelFile& file) {
  qwen3next(c, file);
  c.linear_attention.in_turn = file.flag("ssm.values_in_turn").value_or(true);
}

/// Half of what attn_q gives is a gate on what attention gives.
Array gated_attention(const Layer& l, const Array& x) {
  const Config& c = l.pass.config();
  const int64_t n = x.shape(0), heads = l.config.heads, kv = l.config.kv_heads, dim = c.head_dim;
  const int64_t q = 2 * heads * dim, k = kv * dim;
  const std::vector<Array> qkv = l.has("attn_qkv") ? split(l.product("attn_qkv", x, q + 2 * k), {q, k, k}, 1)
                                                   : l.products({"attn_q", "attn_k", "attn_v"}, x, {q, k, k});
  const std::vector<Array> parts = split(reshape(qkv[0], {n, heads, 2 * dim}), {dim, dim}, 2);
  Heads h{l.norm("attn_q_norm", parts[0]), l.norm("attn_k_norm", reshape(qkv[1], {n, kv, dim})),
          reshape(qkv[2], {n, kv, dim})};
  l.turn(h);
  const Array y = l.attend(h, l.form()) * sigmoid(reshape(parts[1], {n, heads * dim}));
  return l.product("attn_output", y, c.width);
}

/// What the layer makes of its input: queries, keys and values as they go into the convolution, and gates.
struct Mixed {
  Array qkv, gate, step, fade;
};

Mixed mix(const Layer& l, const Array& x) {
  const LinearAttention& a = l.pass.config().linear_attention;
  const int64_t n = x.shape(0), keys = a.key_heads * a.key_dim, values = a.value_heads * a.value_dim,
                share = a.value_heads / a.key_heads;
  Mixed m;
  if (l.has("ssm_in")) {  // by key head: its query, key, values, gates
    const int64_t d = a.key_dim, v = share * a.value_dim;
    const std::vector<Array> parts =
        split(reshape(l.product("ssm_in", x, 2 * keys + 2 * values), {n, a.key_heads, 2 * d + 2 * v}),
              {d, d, v, v}, 2);
    const auto flat = [&](const Array& y) { return reshape(y, {n, -1}); };
    m.qkv = cat({flat(parts[0]), flat(parts[1]), flat(parts[2])}, 1);
    m.gate = flat(parts[3]);
  } else {
    m.qkv = l.product("attn_qkv", x, 2 * keys + values);
    m.gate = l.product("attn_gate", x, values);
  }
  if (l.has("ssm_ba")) {
    const std::vector<Array> parts = split(
        reshape(l.product("ssm_ba", x, 2 * a.value_heads), {n, a.key_heads, 2 * share}), {share, share}, 2);
    m.step = reshape(parts[0], {n, a.value_heads});
    m.fade = reshape(parts[1], {n, a.value_heads});
  } else {
    m.step = l.product("ssm_beta", x, a.value_heads);
    m.fade = l.product("ssm_alpha", x, a.value_heads);
  }
  m.step = sigmoid(m.step);
  m.fade = softplus(m.fade + l.vector("ssm_dt.bias", {a.value_heads})) * l.vector("ssm_a", {a.value_heads});
  return m;
}

Array linear_attention(const Layer& l, const Array& x) {
  const Config& c = l.pass.config();
  const LinearAttention& a = c.linear_attention;
  const int64_t keys = a.key_heads * a.key_dim, values = a.value_heads * a.value_dim,
                share = a.value_heads / a.key_heads;
  const Mixed m = mix(l, x);
  const Array qkv =
      silu(short_convolution(l, m.qkv, l.vector("ssm_conv1d.weight", {2 * keys + values, a.kernel})));
  std::vector<Array> parts;
  for (const Run& run : runs_of(l.pass.batch())) {
    const int64_t s = run.sequences, t = run.length;
    const std::vector<Array> pieces = split(part_of(qkv, run), {keys, keys, values}, 2);
    const auto unit = [&](const Array& y) {  // (s, heads, t, dim), of length 1, for every value head
      const Array heads = reshape(y, {s, t, a.key_heads, a.key_dim});
      const Array one = heads * rsqrt(sum(square(heads), {-1}, true) + 1e-6);
      const Array many = a.in_turn ? expand(unsqueeze(one, 2), {s, t, share, a.key_heads, a.key_dim})
                                   : expand(unsqueeze(one, 3), {s, t, a.key_heads, share, a.key_dim});
      return transpose(reshape(many, {s, t, a.value_heads, a.key_dim}), 1, 2);
    };
    const auto by_head = [&](const Array& y) { return transpose(part_of(y, run), 1, 2); };
    Array state = read_state(l, 1, run, {a.value_heads, a.key_dim, a.value_dim});
    const Array y =
        gated_delta_rule(unit(pieces[0]) / std::sqrt(static_cast<double>(a.key_dim)), unit(pieces[1]),
                         transpose(reshape(pieces[2], {s, t, a.value_heads, a.value_dim}), 1, 2),
                         by_head(m.fade), by_head(m.step), state);
    write_state(l, 1, run, state);
    parts.push_back(reshape(transpose(y, 1, 2), {s * t, a.value_heads, a.value_dim}));
  }
  const Array y = l.norm("ssm_norm", parts.size() == 1 ? parts[0] : cat(parts, 0));
  return l.product("ssm_out", reshape(y, {x.shape(0), values}) * silu(m.gate), c.width);
}

Array forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    const Array normed = l.norm("attn_norm", x);
    x = x + (l.config.recurrent ? linear_attention(l, normed) : gated_attention(l, normed));
    const Array y = l.norm("post_attention_norm", x);
    x = x + (l.config.has_experts ? expert_feed_forward(l, y) : feed_forward(l, y));
  }
  return p.logits(x);
}

}  // namespace

std::vector<Architecture> qwen3next_architectures() {
  return {{"qwen3next", qwen3next, forward}, {"qwen35", qwen35, forward}, {"qwen35moe", qwen35, forward}};
}

}  // namespace weft::llm
