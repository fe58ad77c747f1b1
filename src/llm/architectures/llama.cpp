// Llama and what followed it: norms before (or after) each part, rotary positions, gated feed-forward parts.
#include "llm/architecture.h"

namespace weft::llm {
namespace {

void turn_neighbours(Config& c, const ModelFile&) {
  c.ropes[0].neighbours = true;
}

void qwen2moe(Config& c, const ModelFile& file) {
  c.experts.normalize = file.flag("expert_weights_norm").value_or(false);
}

void granite(Config& c, const ModelFile& file) {
  c.ropes[0].neighbours = true;
  c.logit_scale = 1 / file.positive("logit_scale").value_or(1);
}

/// Every fourth layer knows no positions.
void smollm3(Config& c, const ModelFile& file) {
  c.ropes[0].neighbours = true;
  const std::vector<double> turns = file.numbers("rope.layers");
  for (size_t i = 0; i < c.layers.size(); ++i)
    if (i < turns.size() ? turns[i] == 0 : (i + 1) % 4 == 0) c.layers[i].rope = -1;
}

/// A window in every layer where the file has one.
void windows(Config& c, const ModelFile& file) {
  for (LayerConfig& layer : c.layers) layer.window = file.natural("attention.sliding_window").value_or(0);
}

/// Only mistral of Hugging Face's has a window.
void llama(Config& c, const ModelFile& file) {
  windows(c, file);
  c.ropes[0].neighbours = true;
}

void exaone4(Config& c, const ModelFile& file) {
  const int64_t window = file.natural("attention.sliding_window").value_or(0);
  if (window == 0) return;
  c.alternate(file, window, 4);
  for (LayerConfig& layer : c.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

void starcoder2(Config& c, const ModelFile& file) {
  windows(c, file);
  c.activation = Activation::gelu_tanh;
}

void nemotron(Config& c, const ModelFile&) {
  c.activation = Activation::relu_squared;
}

/// The larger ones have one norm for both parts.
void stablelm(Config& c, const ModelFile& file) {
  c.parallel = !file.has("blk.0.ffn_norm.weight");
}

}  // namespace

Array decoder(Pass& p) {
  const Config& c = p.config();
  Array x = p.embed();
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    const auto normed = [&](const std::string& name, const Array& y) {
      return l.has(name) ? l.norm(name, y) : y;
    };
    const auto scaled = [&](const Array& y) { return c.residual_scale == 1 ? y : y * c.residual_scale; };
    const auto feed = [&](const Array& y) {
      return l.config.has_experts ? expert_feed_forward(l, y) : feed_forward(l, y);
    };
    const Array first = normed("attn_norm", x);
    const Array a = scaled(normed("post_attention_norm", attention(l, first)));
    if (c.parallel) {
      x = x + a + scaled(feed(l.has("ffn_norm") ? l.norm("ffn_norm", x) : first));
    } else {
      x = x + a;
      x = x + scaled(normed("post_ffw_norm", feed(normed("ffn_norm", x))));
    }
  }
  return p.logits(x);
}

std::vector<Architecture> llama_architectures() {
  return {
      {"llama", llama, decoder},          {"qwen2", nullptr, decoder},
      {"qwen2moe", qwen2moe, decoder},    {"qwen3", nullptr, decoder},
      {"qwen3moe", nullptr, decoder},     {"granite", granite, decoder},
      {"smollm3", smollm3, decoder},      {"olmo2", nullptr, decoder},
      {"phi3", windows, decoder},         {"exaone4", exaone4, decoder},
      {"glm4", turn_neighbours, decoder}, {"starcoder2", starcoder2, decoder},
      {"nemotron", nemotron, decoder},    {"stablelm", stablelm, decoder},
  };
}

}  // namespace weft::llm
