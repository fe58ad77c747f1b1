// GPT-2 and Bloom: positions are learned, or a penalty on distance; plain feed-forward parts.
#include "llm/architecture.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void gpt2(Config& c, const ModelFile&) {
  c.activation = Activation::gelu_tanh;
  for (LayerConfig& layer : c.layers) layer.rope = -1;
}

void bloom(Config& c, const ModelFile& file) {
  gpt2(c, file);
  c.alibi = file.number("attention.max_alibi_bias").value_or(8);
}

}  // namespace

std::vector<Architecture> gpt2_architectures() {
  return {{"gpt2", gpt2, decoder}, {"bloom", bloom, decoder}};
}

}  // namespace weft::llm
