#include "llm/hf_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/safetensors.h"
#include "llm/hf_defaults.h"

namespace weft::llm {
namespace {

using nlohmann::json;

/// Reads a config.json, whose keys have changed their names over the years.
class Reader {
 public:
  Reader(const json& config, const std::string& file) : config_(config), file_(file) {}

  /// The first of the keys that is there and not null.
  const json* find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (const auto found = config_.find(key); found != config_.end() && !found->is_null()) return &*found;
    return nullptr;
  }
  std::optional<double> number(std::initializer_list<const char*> keys) const {
    const json* value = find(keys);
    if (!value) return std::nullopt;
    if (!value->is_number()) fail(ErrorKind::io, "[model] {}: '{}' is not a number", file_, *keys.begin());
    return value->get<double>();
  }
  double required(std::initializer_list<const char*> keys) const {
    const std::optional<double> value = number(keys);
    if (!value) fail(ErrorKind::io, "[model] {}: '{}' is missing", file_, *keys.begin());
    return *value;
  }
  bool flag(const char* key, bool fallback = false) const {
    const json* value = find({key});
    return value && value->is_boolean() ? value->get<bool>() : fallback;
  }
  std::string text(std::initializer_list<const char*> keys, const std::string& fallback) const {
    const json* value = find(keys);
    return value && value->is_string() ? value->get<std::string>() : fallback;
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> result;
    if (const json* list = find({key}); list && list->is_array())
      for (const json& x : *list)
        if (x.is_number()) result.push_back(x.get<double>());
    return result;
  }

 private:
  const json& config_;
  const std::string& file_;
};

/// Frequencies that llama 3 slows down, and by how much.
std::vector<float> llama3_divisors(const Reader& scaling, double base, int64_t dims) {
  const double factor = scaling.required({"factor"}), low = scaling.number({"low_freq_factor"}).value_or(1),
               high = scaling.number({"high_freq_factor"}).value_or(4),
               original = scaling.number({"original_max_position_embeddings"}).value_or(8192);
  std::vector<float> divisors;
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double frequency = std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(dims));
    const double length = 2 * M_PI / frequency;  // of a wave, in tokens
    if (length < original / high) {
      divisors.push_back(1);
    } else if (length > original / low) {
      divisors.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (original / length - low) / (high - low);
      divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return divisors;
}

/// rope_scaling of older files, rope_parameters of newer ones.
void add_rope(HfValues& out, const Reader& config, const json& scaling_json, double base, int64_t dims,
              double context, const std::string& file) {
  const Reader scaling(scaling_json, file);
  const std::string type = scaling.text({"rope_type", "type"}, "default");
  auto& values = out.values;
  values["rope.freq_base"] = base;
  values["rope.dimension_count"] = static_cast<double>(dims);
  if (type == "default") return;
  const auto factor = scaling.number({"factor"});
  const double original =
      scaling.number({"original_max_position_embeddings"})
          .value_or(config.number({"original_max_position_embeddings"}).value_or(context));
  if (type == "llama3") {
    out.divisors["rope_freqs.weight"] = llama3_divisors(scaling, base, dims);
    return;
  }
  values["rope.scaling.original_context_length"] = original;
  values["rope.scaling.factor"] = factor.value_or(1);
  if (type == "linear" || type == "dynamic") {
    values["rope.scaling.type"] = type;
    values["rope.scaling.original_context_length"] = context;
  } else if (type == "yarn") {
    values["rope.scaling.type"] = std::string("yarn");
    values["rope.scaling.yarn_beta_fast"] = scaling.number({"beta_fast"}).value_or(32);
    values["rope.scaling.yarn_beta_slow"] = scaling.number({"beta_slow"}).value_or(1);
    values["rope.scaling.yarn_truncate"] = scaling.flag("truncate", true);
    const double by = scaling.required({"factor"});
    const auto magnitude = [&](double m) { return by <= 1 ? 1 : 0.1 * m * std::log(by) + 1; };
    const std::optional<double> given = scaling.number({"attention_factor"}),
                                mscale = scaling.number({"mscale"}), all = scaling.number({"mscale_all_dim"});
    if (given || (mscale && all)) {
      values["rope.scaling.attn_factor"] = given ? *given : magnitude(*mscale) / magnitude(*all);
      values["rope.scaling.attn_factor_is_all"] = true;
    }
    if (all) values["rope.scaling.yarn_log_multiplier"] = 0.1 * *all;
  } else if (type == "longrope" || type == "su") {
    values["rope.scaling.type"] = std::string("longrope");
    for (const auto& [name, key] : {std::pair{"rope_factors_short.weight", "short_factor"},
                                    std::pair{"rope_factors_long.weight", "long_factor"}}) {
      const std::vector<double> list = scaling.numbers(key);
      if (static_cast<int64_t>(list.size()) != dims / 2)
        fail(ErrorKind::io, "[model] {}: '{}' has {} values for {} frequencies", file, key, list.size(),
             dims / 2);
      out.divisors[name] = {list.begin(), list.end()};
    }
    const double stretch = factor.value_or(context / original);
    values["rope.scaling.attn_factor"] =
        scaling.number({"attention_factor"})
            .value_or(stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(original)));
  } else {
    fail(ErrorKind::unsupported, "[model] {}: rope_type '{}' is not known", file, one_line(type));
  }
}

/// Windows that differ from layer to layer, where the config says so.
std::vector<double> windows(const Reader& config, int64_t layers) {
  const std::optional<double> window = config.number({"sliding_window"});
  std::vector<double> result;
  if (const json* types = config.find({"layer_types"}); types && types->is_array()) {
    for (const json& type : *types) result.push_back(type == "sliding_attention" ? window.value_or(0) : 0);
  } else if (const std::string pattern = config.text({"sliding_window_pattern"}, ""); !pattern.empty()) {
    for (int64_t i = 0; i < layers; ++i)  // "LLLG": local, local, local, global
      result.push_back(pattern[static_cast<size_t>(i) % pattern.size()] == 'L' ? window.value_or(0) : 0);
  } else if (config.flag("use_sliding_window")) {
    const std::string type = config.text({"model_type"}, "");
    const double border = config.number({"max_window_layers"}).value_or(0);
    for (int64_t i = 0; i < layers; ++i) {
      const bool behind = static_cast<double>(i) >= border;
      const bool has = type == "qwen3_moe" || (type == "qwen2_moe" ? !behind && i % 2 == 0 : behind);
      result.push_back(has ? window.value_or(0) : 0);
    }
  } else if (config.find({"use_sliding_window"})) {
    result.assign(static_cast<size_t>(layers), 0);
  }
  return result;
}

/// Variants that no pass here computes. Without a word they would give other logits.
void refuse_variants(const Reader& config, const std::string& type, const std::string& file) {
  if (type == "falcon" && (config.flag("alibi") ||
                           !(config.flag("parallel_attn", true) || config.flag("new_decoder_architecture"))))
    fail(ErrorKind::unsupported, "[model] {}: falcon with 'alibi' or without 'parallel_attn' is not known",
         file);
  for (const char* key : {"use_bidirectional_attention", "apply_residual_connection_post_layernorm",
                          "scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (config.flag(key))
      fail(ErrorKind::unsupported, "[model] {}: {} with '{}' is not known", file, type, key);
  if (const std::string positions = config.text({"position_embedding_type"}, "absolute");
      type == "bert" && positions != "absolute")
    fail(ErrorKind::unsupported, "[model] {}: position_embedding_type '{}' is not known", file,
         one_line(positions));
  if (type == "bert" && config.flag("is_decoder"))
    fail(ErrorKind::unsupported, "[model] {}: bert with 'is_decoder' is not known", file);
}

/// DeepSeek's way to choose experts.
void add_groups(HfValues& out, const Reader& config) {
  auto& values = out.values;
  if (const std::optional<double> scale = config.number({"routed_scaling_factor"}))
    values["expert_weights_scale"] = *scale;
  const bool sigmoid = config.text({"model_type"}, "") == "deepseek_v3";
  if (sigmoid) values["expert_gating_func"] = 2.0;
  if (config.text({"topk_method"}, "") == "greedy" || !config.number({"n_group"})) return;
  values["expert_group_count"] = config.required({"n_group"});
  values["expert_group_used_count"] = config.required({"topk_group"});
  values["expert_group_votes"] = sigmoid ? 2.0 : 1.0;
}

/// Layers that are no attention: LFM2's convolutions, Qwen's linear attention.
void add_linear_attention(HfValues& out, const Reader& config) {
  auto& values = out.values;
  if (config.text({"model_type"}, "") == "lfm2") {
    const json* types = config.find({"layer_types"});
    const std::vector<double> attending = config.numbers("full_attn_idxs");
    std::vector<double> kv_heads;
    for (size_t i = 0; i < static_cast<size_t>(config.required({"num_hidden_layers"})); ++i) {
      const bool attends = types && types->is_array()
                               ? i < types->size() && (*types)[i] != "conv"
                               : std::ranges::find(attending, static_cast<double>(i)) != attending.end();
      kv_heads.push_back(attends ? config.required({"num_key_value_heads"}) : 0);
    }
    values["attention.head_count_kv"] = kv_heads;
  }
  if (!config.number({"linear_num_value_heads"})) return;
  const double heads = config.required({"linear_num_value_heads"});
  values["ssm.group_count"] = config.required({"linear_num_key_heads"});
  values["ssm.time_step_rank"] = heads;
  values["ssm.state_size"] = config.required({"linear_key_head_dim"});
  values["ssm.inner_size"] = heads * config.required({"linear_value_head_dim"});
  values["ssm.conv_kernel"] = config.required({"linear_conv_kernel_dim"});
  values["ssm.values_in_turn"] = false;
}

}  // namespace

HfValues hf_values(const json& given, const std::string& file) {
  const std::string type = Reader(given, file).text({"model_type"}, "");
  const json& defaults = hf_defaults(type);
  json whole = defaults;
  whole.update(given);
  const Reader config(whole, file);
  HfValues out;
  auto& values = out.values;
  const auto copy = [&](const char* to, std::initializer_list<const char*> keys) {
    if (const std::optional<double> value = config.number(keys)) values[to] = *value;
  };
  const double width = config.required({"hidden_size", "n_embd", "d_model"}),
               layers = config.required({"num_hidden_layers", "n_layer", "num_layers"}),
               heads = config.required({"num_attention_heads", "n_head"}),
               context =
                   config.number({"max_position_embeddings", "n_positions", "seq_length"}).value_or(2048);
  if (!(width >= 1 && layers >= 1 && heads >= 1 && width < 1e7 && layers < 1e5 && heads < 1e6 &&
        context >= 1))
    fail(ErrorKind::io, "[model] {}: {} layers, {} heads, width {}", file, layers, heads, width);
  values["embedding_length"] = width;
  values["block_count"] = layers;
  values["attention.head_count"] = heads;
  values["context_length"] = context;
  values["feed_forward_length"] =
      config.number({"intermediate_size", "n_inner", "ffn_hidden_size"}).value_or(4 * width);
  copy("attention.head_count_kv", {"num_key_value_heads", "num_kv_heads"});
  if (const json* multi = config.find({"multi_query"}); multi && !config.flag("new_decoder_architecture"))
    values["attention.head_count_kv"] = config.flag("multi_query") ? 1.0 : heads;
  refuse_variants(config, type, file);
  const std::optional<double> still = config.number({"qk_nope_head_dim"});  // of a head beside what turns
  const double head_dim = still ? *still + config.required({"qk_rope_head_dim"})
                                : config.number({"head_dim"}).value_or(std::floor(width / heads));
  if (!(head_dim >= 1 && head_dim <= 65'536))
    fail(ErrorKind::io, "[model] {}: heads of {} elements", file, head_dim);
  values["attention.key_length"] = head_dim;
  values["attention.value_length"] = config.number({"v_head_dim"}).value_or(head_dim);
  copy("attention.layer_norm_rms_epsilon", {"rms_norm_eps"});
  copy("attention.layer_norm_epsilon", {"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"});
  if (const std::optional<double> scalar = config.number({"query_pre_attn_scalar"}))
    values["attention.scale"] = 1 / std::sqrt(*scalar);
  copy("attention.scale", {"attention_multiplier"});
  if (type == "gpt2" && !config.flag("scale_attn_weights", true)) values["attention.scale"] = 1.0;
  copy("embedding_scale", {"embedding_multiplier"});
  copy("residual_scale", {"residual_multiplier"});
  copy("logit_scale", {"logits_scaling", "logit_scale"});
  if (const std::string name =
          config.text({"hidden_activation", "hidden_act", "activation_function", "activation"}, "");
      !name.empty())
    values["hidden_activation"] = name;
  copy("attn_logit_softcapping", {"attn_logit_softcapping"});
  copy("final_logit_softcapping", {"final_logit_softcapping"});
  if (type != "llama") copy("attention.sliding_window", {"sliding_window"});  // which llama does not look at
  if (const json* pattern = config.find({"sliding_window_pattern"}); pattern && pattern->is_number())
    values["attention.sliding_window_pattern"] = pattern->get<double>();
  copy("attention.clamp_kqv", {"clip_qkv"});
  if (const std::vector<double> list = windows(config, static_cast<int64_t>(layers)); !list.empty())
    values["attention.layer_windows"] = list;
  if (std::vector<double> list = config.numbers("no_rope_layers"); !list.empty()) {
    values["rope.layers"] = list;  // despite its name: 1 where a layer has one
  } else if (const std::optional<double> interval = config.number({"no_rope_layer_interval"})) {
    for (double i = 1; i <= layers; ++i) list.push_back(std::fmod(i, *interval) == 0 ? 0 : 1);
    values["rope.layers"] = list;
  }
  if (config.find({"rope_interleave"})) values["rope.interleave"] = config.flag("rope_interleave");
  if (config.find({"use_parallel_residual"}))
    values["use_parallel_residual"] = config.flag("use_parallel_residual");

  copy("expert_count", {"num_experts", "num_local_experts", "n_routed_experts"});
  copy("expert_used_count", {"num_experts_per_tok", "num_experts_per_token"});
  copy("expert_feed_forward_length", {"moe_intermediate_size"});
  copy("expert_shared_feed_forward_length", {"shared_expert_intermediate_size"});
  if (config.find({"norm_topk_prob"}) && type != "deepseek_v2")  // which does not look at it
    values["expert_weights_norm"] = config.flag("norm_topk_prob");
  copy("expert_gate_limit", {"swiglu_limit"});
  copy("expert_gate_slope", {"swiglu_alpha"});
  add_groups(out, config);
  add_linear_attention(out, config);

  const json none = json::object();
  const json* scaling = config.find({"rope_parameters", "rope_scaling"});
  if (!scaling || !scaling->is_object()) scaling = &none;
  const json* full = scaling->contains("full_attention") ? &(*scaling)["full_attention"] : scaling;
  const Reader rope(*full, file);
  const double base =
      rope.number({"rope_theta"}).value_or(config.number({"rope_theta", "rotary_emb_base"}).value_or(10'000));
  const bool in_part = defaults.contains("partial_rotary_factor") || defaults.contains("rotary_pct");
  const double part = in_part
                          ? rope.number({"partial_rotary_factor"})
                                .value_or(config.number({"partial_rotary_factor", "rotary_pct"}).value_or(1))
                          : 1;
  if (!(part >= 0 && part <= 1)) fail(ErrorKind::io, "[model] {}: {} of a head turns", file, part);
  const auto dims = static_cast<int64_t>(still ? head_dim - *still : head_dim * part);
  add_rope(out, config, *full, base, dims - dims % 2, context, file);
  copy("rope.freq_base_swa", {"rope_local_base_freq"});
  if (const auto found = scaling->find("sliding_attention"); found != scaling->end()) {
    const Reader local(*found, file);
    if (const std::string kind = local.text({"rope_type", "type"}, "default"); kind != "default")
      fail(ErrorKind::unsupported, "[model] {}: rope_type '{}' of layers with a window is not known", file,
           one_line(kind));
    if (const std::optional<double> theta = local.number({"rope_theta"}))
      values["rope.freq_base_swa"] = *theta;
  }
  return out;
}

}  // namespace weft::llm
