#include "llm/hf_defaults.h"

#include <nlohmann/json.hpp>

namespace weft::llm {

const nlohmann::json& hf_defaults(std::string_view model_type) {
  // A null stays null: a key that is there without a value says "none".
  static const nlohmann::json all = nlohmann::json::parse(R"({
    "llama": {"rms_norm_eps": 1e-6},
    "mistral": {"rms_norm_eps": 1e-6, "num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"rope_theta": 1e6, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {"rms_norm_eps": 1e-6, "sliding_window": 4096, "use_sliding_window": false, "max_window_layers": 28},
    "qwen2_moe": {"rms_norm_eps": 1e-6, "sliding_window": 4096, "use_sliding_window": false,
                  "max_window_layers": 28, "norm_topk_prob": false, "num_experts": 60, "num_experts_per_tok": 4},
    "qwen3": {"rms_norm_eps": 1e-6, "head_dim": 128, "sliding_window": 4096, "use_sliding_window": false,
              "max_window_layers": 28},
    "qwen3_moe": {"rms_norm_eps": 1e-6, "sliding_window": 4096, "use_sliding_window": false,
                  "norm_topk_prob": false, "num_experts_per_tok": 8},
    "granite": {"rms_norm_eps": 1e-6, "attention_multiplier": 1.0},
    "smollm3": {"rms_norm_eps": 1e-6, "rope_theta": 2e6, "num_key_value_heads": 4, "use_sliding_window": false,
                "no_rope_layer_interval": 4},
    "exaone4": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "phi3": {"partial_rotary_factor": 1.0},
    "glm4": {"rms_norm_eps": 1.5625e-7, "head_dim": 128, "num_key_value_heads": 2, "partial_rotary_factor": 0.5},
    "starcoder2": {"norm_epsilon": 1e-5, "num_key_value_heads": 2},
    "nemotron": {"norm_eps": 1e-5, "partial_rotary_factor": 0.5},
    "stablelm": {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
    "gemma": {"rms_norm_eps": 1e-6, "head_dim": 256},
    "gemma2": {"rms_norm_eps": 1e-6, "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
               "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
               "sliding_window": 4096},
    "gemma3_text": {"rms_norm_eps": 1e-6, "head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
                    "query_pre_attn_scalar": 256, "sliding_window": 4096, "rope_theta": 1e6,
                    "rope_local_base_freq": 1e4, "max_position_embeddings": 131072},
    "phi": {"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5},
    "cohere": {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 5e5},
    "cohere2": {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096},
    "gpt_neox": {"layer_norm_eps": 1e-5, "rotary_pct": 0.25},
    "falcon": {"layer_norm_epsilon": 1e-5, "multi_query": true},
    "bloom": {"layer_norm_epsilon": 1e-5},
    "gpt2": {"layer_norm_epsilon": 1e-5},
    "gpt_oss": {"head_dim": 64, "num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 4,
                "sliding_window": 128, "rope_theta": 150000.0,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                 "truncate": false, "original_max_position_embeddings": 4096}},
    "deepseek_v2": {"rms_norm_eps": 1e-6, "topk_method": "greedy"},
    "deepseek_v3": {"rms_norm_eps": 1e-6, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
                    "norm_topk_prob": true, "num_experts_per_tok": 8},
    "lfm2": {"norm_eps": 1e-5, "rope_theta": 1e6, "num_key_value_heads": 8},
    "qwen3_next": {"rms_norm_eps": 1e-6, "head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
                   "norm_topk_prob": true, "num_experts": 512, "num_experts_per_tok": 10,
                   "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                   "linear_num_key_heads": 16, "linear_num_value_heads": 32},
    "qwen3_5_text": {"rms_norm_eps": 1e-6, "head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25,
                     "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                     "linear_num_key_heads": 16, "linear_num_value_heads": 32},
    "qwen3_5_moe_text": {"rms_norm_eps": 1e-6, "head_dim": 256, "num_key_value_heads": 2,
                         "partial_rotary_factor": 0.25, "num_experts": 256, "num_experts_per_tok": 8,
                         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                         "linear_num_key_heads": 16, "linear_num_value_heads": 32},
    "bert": {"layer_norm_eps": 1e-12}
  })");
  static const nlohmann::json none = nlohmann::json::object();
  auto found = all.find(model_type);
  if (found == all.end()) found = all.find(std::string(model_type) + "_text");  // of models that see pictures
  return found == all.end() ? none : *found;
}

}  // namespace weft::llm
