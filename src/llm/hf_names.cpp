#include "llm/hf_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft::llm {
namespace {

using Rules = std::vector<NameRule>;

const Rules& common_rules() {
  static const Rules rules = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers.N.input_layernorm", "blk.N.attn_norm"},
      {"model.layers.N.self_attn.q_proj", "blk.N.attn_q"},
      {"model.layers.N.self_attn.k_proj", "blk.N.attn_k"},
      {"model.layers.N.self_attn.v_proj", "blk.N.attn_v"},
      {"model.layers.N.self_attn.qkv_proj", "blk.N.attn_qkv"},
      {"model.layers.N.self_attn.o_proj", "blk.N.attn_output"},
      {"model.layers.N.self_attn.q_norm", "blk.N.attn_q_norm"},
      {"model.layers.N.self_attn.k_norm", "blk.N.attn_k_norm"},
      {"model.layers.N.post_attention_layernorm", "blk.N.ffn_norm"},
      {"model.layers.N.pre_feedforward_layernorm", "blk.N.ffn_norm"},
      {"model.layers.N.post_feedforward_layernorm", "blk.N.post_ffw_norm"},
      {"model.layers.N.mlp.gate_proj", "blk.N.ffn_gate"},
      {"model.layers.N.mlp.up_proj", "blk.N.ffn_up"},
      {"model.layers.N.mlp.gate_up_proj", "blk.N.ffn_up"},
      {"model.layers.N.mlp.down_proj", "blk.N.ffn_down"},
      {"model.layers.N.mlp.gate", "blk.N.ffn_gate_inp"},
      {"model.layers.N.mlp.experts.E.gate_proj", "blk.N.ffn_gate_exps"},
      {"model.layers.N.mlp.experts.E.up_proj", "blk.N.ffn_up_exps"},
      {"model.layers.N.mlp.experts.E.down_proj", "blk.N.ffn_down_exps"},
      {"model.layers.N.mlp.shared_expert.gate_proj", "blk.N.ffn_gate_shexp"},
      {"model.layers.N.mlp.shared_expert.up_proj", "blk.N.ffn_up_shexp"},
      {"model.layers.N.mlp.shared_expert.down_proj", "blk.N.ffn_down_shexp"},
      {"model.layers.N.mlp.shared_expert_gate", "blk.N.ffn_gate_inp_shexp", Change::squeezed},
  };
  return rules;
}

const std::vector<HfFamily>& families() {
  static const std::vector<HfFamily> rows = [] {
    const Rules turned = {{"model.layers.N.self_attn.q_proj", "blk.N.attn_q", Change::turned_q},
                          {"model.layers.N.self_attn.k_proj", "blk.N.attn_k", Change::turned_k}};
    const Rules post_norms = {{"model.layers.N.post_attention_layernorm", "blk.N.post_attention_norm"}};
    const Rules mla = {{"model.layers.N.self_attn.q_a_proj", "blk.N.attn_q_a"},
                       {"model.layers.N.self_attn.q_a_layernorm", "blk.N.attn_q_a_norm"},
                       {"model.layers.N.self_attn.q_b_proj", "blk.N.attn_q_b"},
                       {"model.layers.N.self_attn.kv_a_proj_with_mqa", "blk.N.attn_kv_a_mqa"},
                       {"model.layers.N.self_attn.kv_a_layernorm", "blk.N.attn_kv_a_norm"},
                       {"model.layers.N.self_attn.kv_b_proj", "blk.N.attn_kv_b"},
                       {"model.layers.N.mlp.gate.e_score_correction_bias", "blk.N.exp_probs_b.bias"},
                       {"model.layers.N.mlp.shared_experts.gate_proj", "blk.N.ffn_gate_shexp"},
                       {"model.layers.N.mlp.shared_experts.up_proj", "blk.N.ffn_up_shexp"},
                       {"model.layers.N.mlp.shared_experts.down_proj", "blk.N.ffn_down_shexp"}};
    const Rules linear = {
        {"model.layers.N.linear_attn.in_proj_qkvz", "blk.N.ssm_in"},
        {"model.layers.N.linear_attn.in_proj_ba", "blk.N.ssm_ba"},
        {"model.layers.N.linear_attn.in_proj_qkv", "blk.N.attn_qkv"},
        {"model.layers.N.linear_attn.in_proj_z", "blk.N.attn_gate"},
        {"model.layers.N.linear_attn.in_proj_b", "blk.N.ssm_beta"},
        {"model.layers.N.linear_attn.in_proj_a", "blk.N.ssm_alpha"},
        {"model.layers.N.linear_attn.conv1d", "blk.N.ssm_conv1d", Change::squeezed},
        {"model.layers.N.linear_attn.dt_bias", "blk.N.ssm_dt.bias"},
        {"model.layers.N.linear_attn.A_log", "blk.N.ssm_a", Change::minus_exp},
        {"model.layers.N.linear_attn.norm", "blk.N.ssm_norm", Change::squeezed},  // not less 1 as the others
        {"model.layers.N.linear_attn.out_proj", "blk.N.ssm_out"}};
    const Rules stacked = {{"model.layers.N.mlp.experts.gate_up_proj", "blk.N.ffn_gate_up_exps.weight"},
                           {"model.layers.N.mlp.experts.down_proj", "blk.N.ffn_down_exps.weight"}};
    const auto with = [](Rules rules, const Rules& more) {
      rules.insert(rules.end(), more.begin(), more.end());
      return rules;
    };
    return std::vector<HfFamily>{
        {"llama", "llama", turned},
        {"mistral", "llama", turned},
        {"mixtral", "llama",
         with(turned, {{"model.layers.N.block_sparse_moe.gate", "blk.N.ffn_gate_inp"},
                       {"model.layers.N.block_sparse_moe.experts.E.w1", "blk.N.ffn_gate_exps"},
                       {"model.layers.N.block_sparse_moe.experts.E.w3", "blk.N.ffn_up_exps"},
                       {"model.layers.N.block_sparse_moe.experts.E.w2", "blk.N.ffn_down_exps"}})},
        {"qwen2", "qwen2", {}},
        {"qwen2_moe", "qwen2moe", {}},
        {"qwen3", "qwen3", {}},
        {"qwen3_moe", "qwen3moe", {}},
        {"granite", "granite", turned},
        {"smollm3", "smollm3", turned},
        {"olmo2", "olmo2", post_norms},
        {"exaone4", "exaone4", post_norms},
        {"phi3", "phi3", {}},
        {"glm4",
         "glm4",
         {{"model.layers.N.post_self_attn_layernorm", "blk.N.post_attention_norm"},
          {"model.layers.N.post_mlp_layernorm", "blk.N.post_ffw_norm"}}},
        {"starcoder2",
         "starcoder2",
         {{"model.layers.N.mlp.c_fc", "blk.N.ffn_up"}, {"model.layers.N.mlp.c_proj", "blk.N.ffn_down"}}},
        {"nemotron", "nemotron", {}, Change::plus_one},
        {"stablelm",
         "stablelm",
         {{"model.layers.N.self_attn.q_layernorm.norms.E", "blk.N.attn_q_norm"},
          {"model.layers.N.self_attn.k_layernorm.norms.E", "blk.N.attn_k_norm"}}},
        {"gemma", "gemma", {}, Change::plus_one},
        {"gemma2", "gemma2", post_norms, Change::plus_one},
        {"gemma3_text", "gemma3", post_norms, Change::plus_one},
        {"gemma3", "gemma3", post_norms, Change::plus_one},
        {"phi",
         "phi2",
         {{"model.layers.N.self_attn.dense", "blk.N.attn_output"},
          {"model.layers.N.self_attn.q_layernorm", "blk.N.attn_q_norm"},
          {"model.layers.N.self_attn.k_layernorm", "blk.N.attn_k_norm"},
          {"model.layers.N.mlp.fc1", "blk.N.ffn_up"},
          {"model.layers.N.mlp.fc2", "blk.N.ffn_down"},
          {"model.final_layernorm", "output_norm"}}},
        {"cohere", "command-r", {}},
        {"cohere2", "cohere2", {}},
        {"gpt_neox",
         "gptneox",
         {{"gpt_neox.embed_in", "token_embd"},
          {"gpt_neox.layers.N.input_layernorm", "blk.N.attn_norm"},
          {"gpt_neox.layers.N.post_attention_layernorm", "blk.N.ffn_norm"},
          {"gpt_neox.layers.N.attention.query_key_value", "blk.N.attn_qkv", Change::qkv_by_head},
          {"gpt_neox.layers.N.attention.dense", "blk.N.attn_output"},
          {"gpt_neox.layers.N.mlp.dense_h_to_4h", "blk.N.ffn_up"},
          {"gpt_neox.layers.N.mlp.dense_4h_to_h", "blk.N.ffn_down"},
          {"gpt_neox.final_layer_norm", "output_norm"},
          {"embed_out", "output"}}},
        {"falcon",
         "falcon",
         {{"transformer.word_embeddings", "token_embd"},
          {"transformer.h.N.input_layernorm", "blk.N.attn_norm"},
          {"transformer.h.N.ln_mlp", "blk.N.attn_norm"},
          {"transformer.h.N.ln_attn", "blk.N.attn_norm_2"},
          {"transformer.h.N.self_attention.query_key_value", "blk.N.attn_qkv", Change::qkv_by_group},
          {"transformer.h.N.self_attention.dense", "blk.N.attn_output"},
          {"transformer.h.N.mlp.dense_h_to_4h", "blk.N.ffn_up"},
          {"transformer.h.N.mlp.dense_4h_to_h", "blk.N.ffn_down"},
          {"transformer.ln_f", "output_norm"}}},
        {"bloom",
         "bloom",
         {{"transformer.word_embeddings", "token_embd"},
          {"transformer.word_embeddings_layernorm", "token_embd_norm"},
          {"transformer.h.N.input_layernorm", "blk.N.attn_norm"},
          {"transformer.h.N.post_attention_layernorm", "blk.N.ffn_norm"},
          {"transformer.h.N.self_attention.query_key_value", "blk.N.attn_qkv", Change::qkv_by_head},
          {"transformer.h.N.self_attention.dense", "blk.N.attn_output"},
          {"transformer.h.N.mlp.dense_h_to_4h", "blk.N.ffn_up"},
          {"transformer.h.N.mlp.dense_4h_to_h", "blk.N.ffn_down"},
          {"transformer.ln_f", "output_norm"}}},
        {"gpt2",
         "gpt2",
         {{"transformer.wte", "token_embd"},
          {"transformer.wpe", "position_embd"},
          {"transformer.h.N.ln_1", "blk.N.attn_norm"},
          {"transformer.h.N.ln_2", "blk.N.ffn_norm"},
          {"transformer.h.N.attn.c_attn", "blk.N.attn_qkv", Change::transposed},
          {"transformer.h.N.attn.c_proj", "blk.N.attn_output", Change::transposed},
          {"transformer.h.N.mlp.c_fc", "blk.N.ffn_up", Change::transposed},
          {"transformer.h.N.mlp.c_proj", "blk.N.ffn_down", Change::transposed},
          {"transformer.ln_f", "output_norm"}}},
        {"gpt_oss", "gpt-oss",
         with(post_norms, {{"model.layers.N.self_attn.sinks", "blk.N.attn_sinks.weight"},
                           {"model.layers.N.mlp.router", "blk.N.ffn_gate_inp"}})},
        {"deepseek_v2", "deepseek2", mla},
        {"deepseek_v3", "deepseek2", mla},
        {"lfm2",
         "lfm2",
         {{"model.embedding_norm", "output_norm"},
          {"model.layers.N.operator_norm", "blk.N.attn_norm"},
          {"model.layers.N.ffn_norm", "blk.N.ffn_norm"},
          {"model.layers.N.self_attn.out_proj", "blk.N.attn_output"},
          {"model.layers.N.self_attn.q_layernorm", "blk.N.attn_q_norm"},
          {"model.layers.N.self_attn.k_layernorm", "blk.N.attn_k_norm"},
          {"model.layers.N.conv.conv", "blk.N.shortconv.conv", Change::squeezed},
          {"model.layers.N.conv.in_proj", "blk.N.shortconv.in_proj"},
          {"model.layers.N.conv.out_proj", "blk.N.shortconv.out_proj"},
          {"model.layers.N.feed_forward.w1", "blk.N.ffn_gate"},
          {"model.layers.N.feed_forward.w3", "blk.N.ffn_up"},
          {"model.layers.N.feed_forward.w2", "blk.N.ffn_down"}}},
        {"qwen3_next", "qwen3next", with(post_norms, linear), Change::plus_one},
        {"qwen3_5_text", "qwen35", with(post_norms, linear), Change::plus_one},
        {"qwen3_5", "qwen35", with(post_norms, linear), Change::plus_one},
        {"qwen3_5_moe_text", "qwen35moe", with(post_norms, with(linear, stacked)), Change::plus_one},
        {"qwen3_5_moe", "qwen35moe", with(post_norms, with(linear, stacked)), Change::plus_one},
        {"bert",
         "bert",
         {{"embeddings.word_embeddings", "token_embd"},
          {"embeddings.token_type_embeddings", "token_types"},
          {"embeddings.position_embeddings", "position_embd"},
          {"embeddings.LayerNorm", "token_embd_norm"},
          {"encoder.layer.N.attention.self.query", "blk.N.attn_q"},
          {"encoder.layer.N.attention.self.key", "blk.N.attn_k"},
          {"encoder.layer.N.attention.self.value", "blk.N.attn_v"},
          {"encoder.layer.N.attention.output.dense", "blk.N.attn_output"},
          {"encoder.layer.N.attention.output.LayerNorm", "blk.N.attn_output_norm"},
          {"encoder.layer.N.intermediate.dense", "blk.N.ffn_up"},
          {"encoder.layer.N.output.dense", "blk.N.ffn_down"},
          {"encoder.layer.N.output.LayerNorm", "blk.N.layer_output_norm"}}},
    };
  }();
  return rows;
}

/// Whether `text` is `pattern` with numbers for N and E.
bool matches(std::string_view pattern, std::string_view text, int64_t& layer, int64_t& expert) {
  while (!pattern.empty()) {
    const bool whole = pattern.size() == 1 || pattern[1] == '.';  // not the N of "LayerNorm"
    if (whole && (pattern.front() == 'N' || pattern.front() == 'E')) {
      int64_t number = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || number < 0) return false;
      (pattern.front() == 'N' ? layer : expert) = number;
      text.remove_prefix(static_cast<size_t>(end - text.data()));
    } else {
      if (text.empty() || text.front() != pattern.front()) return false;
      text.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return text.empty();
}

}  // namespace

const HfFamily& find_hf_family(std::string_view model_type, const std::string& file) {
  const auto found = std::ranges::find(families(), model_type, &HfFamily::model_type);
  if (found != families().end()) return *found;
  std::vector<std::string_view> names;
  for (const HfFamily& family : families()) names.push_back(family.model_type);
  std::ranges::sort(names);
  fail(ErrorKind::unsupported, "[model] model_type '{}' is not known; these are: {}; it is that of {}",
       one_line(model_type), fmt::join(names, ", "), file);
}

const HfFamily& find_hf_family_of(std::string_view architecture) {
  const auto found = std::ranges::find(families(), architecture, &HfFamily::architecture);
  if (found == families().end())
    fail(ErrorKind::unsupported, "[model] there are no folders of architecture '{}'", one_line(architecture));
  return *found;
}

std::optional<NewName> gguf_name(const HfFamily& family, std::string_view stem) {
  for (const Rules* rules : {&family.rules, &common_rules()})
    for (const NameRule& rule : *rules) {
      int64_t layer = -1, expert = -1;
      if (!matches(rule.from, stem, layer, expert)) continue;
      NewName result{.name = std::string(rule.to), .change = rule.change, .expert = expert};
      if (layer >= 0) result.name.replace(result.name.find('N'), 1, std::to_string(layer));
      if (result.name.ends_with("norm") && rule.change == Change::none) result.change = family.norms;
      return result;
    }
  return std::nullopt;
}

}  // namespace weft::llm
