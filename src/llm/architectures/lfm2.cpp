// LFM2: short gated convolutions in most layers, attention in the others.
#include "base/error.h"
#include "llm/architecture.h"
#include "llm/recurrent.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void lfm2(Config& c, const ModelFile& file) {
  c.norm = Norm::rms;
  for (size_t i = 0; i < c.layers.size(); ++i) {
    c.layers[i].recurrent = c.layers[i].kv_heads == 0;
    // Configs of Hugging Face's have a width that is yet to be rounded.
    c.layers[i].hidden = file.rows(fmt::format("blk.{}.ffn_up.weight", i));
  }
}

Array convolution(const Layer& l, const Array& x) {
  const int64_t width = l.pass.config().width;
  const std::vector<Array> parts =
      split(l.product("shortconv.in_proj", x, 3 * width), {width, width, width}, 1);
  const Shape shape = l.pass.weights().shape(l.name("shortconv.conv.weight"));
  if (shape.size() != 2 || shape[0] != width || shape[1] < 2)
    fail(ErrorKind::io, "[model] {}: tensor '{}' is {}, expected ({},kernel)", l.pass.weights().file().name,
         l.name("shortconv.conv.weight"), to_string(shape), width);
  Array y = short_convolution(l, parts[0] * parts[2], l.vector("shortconv.conv.weight", shape));
  if (l.pass.weights().has(l.name("shortconv.conv.bias"))) y = y + l.vector("shortconv.conv.bias", {width});
  return l.product("shortconv.out_proj", parts[1] * y, width);
}

Array forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    const Array normed = l.norm("attn_norm", x);
    x = x + (l.config.recurrent ? convolution(l, normed) : attention(l, normed));
    x = x + feed_forward(l, l.norm("ffn_norm", x));
  }
  return p.logits(x);
}

}  // namespace

std::vector<Architecture> lfm2_architectures() {
  return {{"lfm2", lfm2, forward}};
}

}  // namespace weft::llm
