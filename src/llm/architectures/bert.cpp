// BERT: every token sees all others; norms come after each part. It has no logits: it gives activations.
#include "llm/architecture.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void bert(Config& c, const ModelFile&) {
  c.causal = false;
  c.activation = Activation::gelu;
  for (LayerConfig& layer : c.layers) layer.rope = -1;
}

Array forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    x = l.norm("attn_output_norm", x + attention(l, x));
    x = l.norm("layer_output_norm", x + feed_forward(l, x));
  }
  return p.wanted(x);
}

}  // namespace

std::vector<Architecture> bert_architectures() {
  return {{"bert", bert, forward}};
}

}  // namespace weft::llm
