// Attention and feed-forward part side by side: GPT-NeoX, Falcon, Phi 2, Command R.
#include "llm/architecture.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void gptneox(Config& c, const ModelFile& file) {
  c.activation = Activation::gelu;
  c.parallel = file.flag("use_parallel_residual").value_or(true);
}

void falcon(Config& c, const ModelFile&) {
  c.activation = Activation::gelu;
}

void phi2(Config& c, const ModelFile&) {
  c.activation = Activation::gelu_tanh;
  c.parallel = true;
}

void command_r(Config& c, const ModelFile&) {
  c.ropes[0].neighbours = true;
  c.parallel = true;
}

/// Layers without a window do not know positions.
void cohere2(Config& c, const ModelFile& file) {
  command_r(c, file);
  c.alternate(file, file.natural("attention.sliding_window").value_or(4096), 4);
  for (LayerConfig& layer : c.layers) layer.rope = layer.window > 0 ? 0 : -1;
}

/// The larger ones have a norm for each part: attn_norm_2 is the one before attention.
Array falcon_forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    const Array normed = l.norm("attn_norm", x);
    x = x + attention(l, l.has("attn_norm_2") ? l.norm("attn_norm_2", x) : normed) + feed_forward(l, normed);
  }
  return p.logits(x);
}

}  // namespace

std::vector<Architecture> parallel_architectures() {
  return {
      {"gptneox", gptneox, decoder},     {"falcon", falcon, falcon_forward}, {"phi2", phi2, decoder},
      {"command-r", command_r, decoder}, {"cohere2", cohere2, decoder},
  };
}

}  // namespace weft::llm
