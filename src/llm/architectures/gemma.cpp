// Gemma: embeddings scaled by the root of the width, norms around each part, windows in most layers.
#include <cmath>

#include "llm/architecture.h"

namespace weft::llm {
namespace {

void gemma(Config& c, const ModelFile&) {
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.width));
}

/// The largest of a generation scales scores by what a head would have if heads shared the width.
void scale_by_width(Config& c, const ModelFile& file, size_t layers) {
  if (!file.number("attention.scale") && c.layers.size() == layers)
    c.attention_scale = 1 / std::sqrt(static_cast<double>(c.width / c.layers[0].heads));
}

void gemma2(Config& c, const ModelFile& file) {
  gemma(c, file);
  scale_by_width(c, file, 46);
  c.alternate(file, file.natural("attention.sliding_window").value_or(4096), 2);
}

void gemma3(Config& c, const ModelFile& file) {
  gemma(c, file);
  scale_by_width(c, file, 62);
  if (!file.number("rope.freq_base")) c.ropes[0].base = 1'000'000;
  RopeConfig local;
  local.dims = c.ropes[0].dims;
  local.base = file.positive("rope.freq_base_swa").value_or(10'000);
  c.ropes.push_back(local);
  c.alternate(file, file.natural("attention.sliding_window").value_or(1024), 6);
}

}  // namespace

std::vector<Architecture> gemma_architectures() {
  return {{"gemma", gemma, decoder}, {"gemma2", gemma2, decoder}, {"gemma3", gemma3, decoder}};
}

}  // namespace weft::llm
