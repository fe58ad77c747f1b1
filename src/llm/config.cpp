#include "llm/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft::llm {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;  // no size of a model is larger
constexpr int64_t kMostOfHead = 65'536;

/// A number per layer, or one for all of them.
class PerLayer {
 public:
  PerLayer(const ModelFile& file, std::string_view key) : file_(file), key_(key), all_(file.numbers(key)) {}

  int64_t at(size_t layer, int64_t fallback) const {
    if (all_.empty()) return fallback;
    if (all_.size() > 1 && layer >= all_.size())
      fail(ErrorKind::io, "[model] {}: '{}' has {} values", file_.name, key_, all_.size());
    const double value = all_[all_.size() == 1 ? 0 : layer];
    if (!(value >= 0 && value <= static_cast<double>(kMost)))
      fail(ErrorKind::io, "[model] {}: '{}' is {}", file_.name, key_, value);
    return static_cast<int64_t>(value);
  }

 private:
  const ModelFile& file_;
  std::string_view key_;
  std::vector<double> all_;
};

RopeConfig rope_of(const ModelFile& file, int64_t head_dim) {
  RopeConfig rope;
  rope.dims = file.integer("rope.dimension_count").value_or(head_dim);
  if (rope.dims < 0 || rope.dims > head_dim || rope.dims % 2 != 0)
    fail(ErrorKind::io, "[model] {}: 'rope.dimension_count' is {} of {}", file.name, rope.dims, head_dim);
  rope.base = file.positive("rope.freq_base").value_or(10'000);
  rope.scaling = file.text("rope.scaling.type").value_or("none");
  rope.factor = file.number("rope.scaling.factor").value_or(file.number("rope.scale_linear").value_or(1));
  if (rope.factor <= 0) rope.factor = 1;
  if (rope.scaling == "none" && file.number("rope.scale_linear")) rope.scaling = "linear";
  rope.original_context =
      static_cast<double>(file.integer("rope.scaling.original_context_length").value_or(0));
  rope.magnitude = file.number("rope.scaling.attn_factor").value_or(1);
  rope.has_own_magnitude = file.flag("rope.scaling.attn_factor_is_all").value_or(false);
  rope.beta_fast = file.number("rope.scaling.yarn_beta_fast").value_or(32);
  rope.beta_slow = file.number("rope.scaling.yarn_beta_slow").value_or(1);
  rope.truncate = file.flag("rope.scaling.yarn_truncate").value_or(true);
  const auto divisors = [&](std::string_view tensor) -> std::vector<double> {
    if (!file.has(tensor)) return {};
    const std::vector<float> values = file.tensor(tensor).values();
    if (static_cast<int64_t>(values.size()) != rope.dims / 2)
      fail(ErrorKind::io, "[model] {}: tensor '{}' has {} values for {} frequencies", file.name, tensor,
           values.size(), rope.dims / 2);
    return {values.begin(), values.end()};
  };
  rope.divisors = divisors("rope_freqs.weight");
  if (rope.divisors.empty()) rope.divisors = divisors("rope_factors_short.weight");
  rope.long_divisors = divisors("rope_factors_long.weight");
  return rope;
}

}  // namespace

Config::Config(const ModelFile& file) : architecture(file.architecture) {
  width = file.required("embedding_length");
  context = file.integer("context_length").value_or(2048);
  const int64_t count = file.required("block_count");
  if (count > 10'000 || width > kMost || context < 1)
    fail(ErrorKind::io, "[model] {}: {} layers of width {}, context {}", file.name, count, width, context);
  const Shape& table = file.tensor("token_embd.weight").shape;
  if (table.size() != 2 || table[1] != width)
    fail(ErrorKind::io, "[model] {}: token_embd.weight is {}, expected (tokens,{})", file.name,
         to_string(table), width);
  vocabulary = table[0];

  const PerLayer all_heads(file, "attention.head_count"), kv_heads(file, "attention.head_count_kv"),
      hidden(file, "feed_forward_length"), windows(file, "attention.layer_windows");
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    LayerConfig layer;
    layer.heads = all_heads.at(i, 0);
    layer.kv_heads = kv_heads.at(i, layer.heads);
    layer.hidden = hidden.at(i, 0);
    if (layer.kv_heads > 0 && (layer.heads <= 0 || layer.heads % layer.kv_heads != 0))
      fail(ErrorKind::io, "[model] {}: {} query heads do not share {} key heads", file.name, layer.heads,
           layer.kv_heads);
    layer.window = windows.at(i, 0);
    layers.push_back(layer);
  }
  const int64_t heads = std::ranges::max(layers, {}, &LayerConfig::heads).heads;
  if (heads == 0 && !file.integer("attention.key_length"))
    fail(ErrorKind::io, "[model] {}: 'attention.head_count' is missing", file.name);
  head_dim = file.integer("attention.key_length").value_or(heads > 0 ? width / heads : 0);
  value_dim = file.integer("attention.value_length").value_or(head_dim);
  if (head_dim <= 0 || value_dim <= 0 || head_dim > kMostOfHead || value_dim > kMostOfHead)
    fail(ErrorKind::io,
         "[model] {}: heads of {} and {} elements ('attention.key_length', '.value_length'); at most {}",
         file.name, head_dim, value_dim, kMostOfHead);
  ropes.push_back(rope_of(file, head_dim));
  attention_scale = file.number("attention.scale").value_or(1 / std::sqrt(static_cast<double>(head_dim)));
  if (attention_scale == 0) attention_scale = 1 / std::sqrt(static_cast<double>(head_dim));

  norm = file.number("attention.layer_norm_epsilon") ? Norm::layer : Norm::rms;
  norm_eps = file.number("attention.layer_norm_rms_epsilon")
                 .value_or(file.number("attention.layer_norm_epsilon").value_or(1e-5));
  if (norm_eps < 0) fail(ErrorKind::io, "[model] {}: the epsilon of norms is {}", file.name, norm_eps);
  attention_softcap = file.number("attn_logit_softcapping").value_or(0);
  final_softcap = file.number("final_logit_softcapping").value_or(0);
  embedding_scale = file.number("embedding_scale").value_or(1);
  residual_scale = file.number("residual_scale").value_or(1);
  logit_scale = file.number("logit_scale").value_or(1);
  clamp_qkv = file.number("attention.clamp_kqv").value_or(0);
  parallel = file.flag("use_parallel_residual").value_or(false);
  causal = file.flag("attention.causal").value_or(true);

  experts.count = file.integer("expert_count").value_or(0);
  experts.used = file.integer("expert_used_count").value_or(0);
  if (experts.count < 0 || experts.count > 65'536 || experts.used > experts.count ||
      experts.used < (experts.count > 0 ? 1 : 0))
    fail(ErrorKind::io, "[model] {}: {} of {} experts", file.name, experts.used, experts.count);
  experts.width = file.integer("expert_feed_forward_length").value_or(layers[0].hidden);
  if (experts.count > 0 && (experts.width < 1 || experts.width > kMost))
    fail(ErrorKind::io, "[model] {}: experts of width {}", file.name, experts.width);
  experts.shared_width = file.integer("expert_shared_feed_forward_length").value_or(0);
  experts.scale = file.number("expert_weights_scale").value_or(1);
  if (experts.scale == 0) experts.scale = 1;
  experts.normalize = file.flag("expert_weights_norm").value_or(experts.normalize);
  experts.sigmoid = file.integer("expert_gating_func").value_or(1) == 2;
  experts.groups = file.integer("expert_group_count").value_or(1);
  experts.used_groups = file.integer("expert_group_used_count").value_or(1);
  experts.group_votes = file.integer("expert_group_votes").value_or(2);
  if (experts.groups < 1 || experts.used_groups < 1 || experts.used_groups > experts.groups ||
      (experts.groups > 1 && (experts.count % experts.groups != 0 || experts.group_votes < 1 ||
                              experts.group_votes > experts.count / experts.groups ||
                              experts.used > experts.count / experts.groups * experts.used_groups)))
    fail(ErrorKind::io, "[model] {}: {} experts in {} groups, {} of them used", file.name, experts.count,
         experts.groups, experts.used_groups);
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].has_experts = experts.count > 0 && file.has(fmt::format("blk.{}.ffn_gate_inp.weight", i));
}

void Config::alternate(const ModelFile& file, int64_t window, int64_t period) {
  const std::vector<double> pattern = file.numbers("attention.sliding_window_pattern");
  if (pattern.size() == 1) period = static_cast<int64_t>(pattern[0]);
  if (pattern.size() > 1 && pattern.size() < layers.size())
    fail(ErrorKind::io, "[model] {}: 'attention.sliding_window_pattern' has {} values", file.name,
         pattern.size());
  const PerLayer windows(file, "attention.layer_windows");
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool local =
        pattern.size() > 1 ? pattern[i] != 0 : period <= 0 || static_cast<int64_t>(i + 1) % period != 0;
    layers[i].window = windows.at(i, local ? window : 0);
    if (ropes.size() > 1) layers[i].rope = layers[i].window > 0 ? 1 : 0;
  }
}

void Config::check_heads(const ModelFile& file) const {
  for (size_t i = 0; i < layers.size(); ++i)
    for (const char* projection : {"attn_q", "attn_qkv"})
      if (const std::string name = fmt::format("blk.{}.{}.weight", i, projection);
          !layers[i].recurrent && file.has(name) && file.rows(name) / head_dim < layers[i].heads)
        fail(ErrorKind::io, "[model] {}: tensor '{}' is {}, too small for {} heads of {} elements", file.name,
             name, to_string(file.tensor(name).shape), layers[i].heads, head_dim);
}

void Config::read_activation(const ModelFile& file) {
  const std::optional<std::string> name = file.text("hidden_activation");
  if (!name) return;
  // As transformers names them: some are one function, computed in several ways.
  static const std::map<std::string_view, Activation> known = {
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_accurate", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_python_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},
      {"relu2", Activation::relu_squared},
  };
  const auto found = known.find(*name);
  if (found == known.end())
    fail(ErrorKind::unsupported, "[model] {}: activation '{}' is not known", file.name, one_line(*name));
  activation = found->second;
}

int64_t Config::rope_border() const {
  auto border = std::numeric_limits<int64_t>::max();
  for (const RopeConfig& rope : ropes)
    if (!rope.long_divisors.empty()) border = std::min(border, static_cast<int64_t>(rope.original_context));
  return border;
}

}  // namespace weft::llm
