// gpt-oss: experts with clamped gates, scores that take part without a value, windows in every second layer.
#include "llm/architecture.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

void gptoss(Config& c, const ModelFile& file) {
  c.experts.gate_limit = file.number("expert_gate_limit").value_or(7);
  c.experts.gate_slope = file.number("expert_gate_slope").value_or(1.702);
  c.alternate(file, file.natural("attention.sliding_window").value_or(128), 2);
}

Array experts(const Layer& l, const Array& x) {
  const Config& c = l.pass.config();
  const Experts& e = c.experts;
  const Sorted best = topk(l.product("ffn_gate_inp", x, e.count), e.used);
  const Array one = unsqueeze(x, 1);
  const Array gate = minimum(l.expert_product("ffn_gate_exps", one, best.indices, e.width), e.gate_limit);
  const Array up =
      clamp(l.expert_product("ffn_up_exps", one, best.indices, e.width), -e.gate_limit, e.gate_limit);
  const Array down = l.expert_product("ffn_down_exps", gate * sigmoid(gate * e.gate_slope) * (up + 1.0),
                                      best.indices, c.width);
  return sum(down * unsqueeze(softmax(best.values, -1), -1), {1});
}

Array forward(Pass& p) {
  Array x = p.embed();
  for (size_t i = 0; i < p.config().layers.size(); ++i) {
    const Layer l = p.layer(i, x);
    Heads heads = l.heads(l.norm("attn_norm", x));
    l.turn(heads);
    AttentionForm form = l.form();
    form.sinks = l.vector("attn_sinks.weight", {l.config.heads});
    x = x + l.product("attn_output", l.attend(heads, form), p.config().width);
    x = x + experts(l, l.norm("post_attention_norm", x));
  }
  return p.logits(x);
}

}  // namespace

std::vector<Architecture> gptoss_architectures() {
  return {{"gpt-oss", gptoss, forward}};
}

}  // namespace weft::llm
