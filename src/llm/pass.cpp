#include "llm/pass.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/backend.h"
#include "base/error.h"
#include "ops/shorthand.h"

namespace weft::llm {
namespace {

/// What ops with packed weights ask for.
Attrs packed_attrs(const Matrix& m) {
  return {{"type", std::string(quant::traits(m.type).name)}, {"n", m.n}, {"k", m.k}};
}

std::string weight(const std::string& name) {
  return name + ".weight";
}
std::string bias(const std::string& name) {
  return name + ".bias";
}

std::string scale(const std::string& name) {
  return name + ".scale";
}

/// How long the text of each token is after this pass.
std::vector<int64_t> lengths(const Batch& batch) {
  std::vector<int64_t> result(batch.positions.begin(), batch.positions.end());
  for (size_t i = result.size(); i-- > 0;) {
    const bool last = i + 1 == result.size() || batch.sequences[i] != batch.sequences[i + 1];
    result[i] = last ? result[i] + 1 : result[i + 1];
  }
  return result;
}

/// Of what is stored: blocks are bytes.
DType dtype_of(quant::Type type) {
  return type == quant::Type::f32 ? DType::f32 : type == quant::Type::f16 ? DType::f16 : DType::u8;
}

}  // namespace

Array Pass::input(const std::string& name, const std::vector<int32_t>& values, const Device& device) {
  if (const auto found = given_.find(name); found != given_.end()) return found->second;
  Array& made = inputs_[{&device.backend(), name}];
  if (!made) made = Array::from_span(std::span(values), {static_cast<int64_t>(values.size())}, device);
  return made;
}

Array Pass::embed() {
  const Config& c = config();
  const std::string name = "token_embd.weight";
  const quant::Type type = weights().file().tensor(name).type;
  const Array& table = weights().table(name, {c.vocabulary, c.width});
  const Array ids = tokens(table.device());
  Array x = table.dtype() == DType::u8
                ? call("qembedding", {table, ids}, {{"type", std::string(quant::traits(type).name)}})
                : as(embedding(table, ids), DType::f32);
  if (c.embedding_scale != 1) x = x * c.embedding_scale;
  if (has("position_embd")) {
    const Array& learned = weights().table("position_embd.weight", weights().shape("position_embd.weight"));
    if (learned.ndim() != 2 || learned.shape(0) < state_.context || learned.shape(1) != c.width)
      fail(ErrorKind::io, "[model] {}: position_embd.weight is {}, expected ({},{})", weights().file().name,
           to_string(learned.shape()), state_.context, c.width);
    if (learned.dtype() == DType::u8)
      fail(ErrorKind::unsupported, "[model] {}: position_embd.weight is quantised", weights().file().name);
    x = x + as(embedding(learned, positions(learned.device())), DType::f32);
  }
  if (has("token_types")) {  // texts are of the first type
    const Array& types =
        weights().vector("token_types.weight", {weights().file().rows("token_types.weight"), c.width});
    x = x + slice_dim(types, 0, 0, 1);
  }
  return has("token_embd_norm") ? norm("token_embd_norm", x) : x;
}

Layer Pass::layer(size_t i, Array& x) {
  const Device& device = state_.devices[i];
  if (x.device() != device) x = x.to_device(device);
  return {*this, i};
}

Array Pass::wanted(const Array& x) {
  const Device& device = state_.devices.back();
  const Array here = x.device() == device ? x : x.to_device(device);
  if (std::ssize(batch_.outputs) == batch_.size()) return here;
  return index_select(here, input("outputs", batch_.outputs, device), 0);
}

Array Pass::logits(const Array& hidden) {
  const Config& c = config();
  Array x = wanted(hidden);
  if (has("output_norm")) x = norm("output_norm", x);
  if (batch_.activations) return x;
  const bool own = has("output");
  x = product(own ? "output" : "token_embd", x, c.vocabulary, x.shape(0) > kManyLogits ? 8 : kBits);
  if (!own) x = with_bias("output", x);
  if (c.logit_scale != 1) x = x * c.logit_scale;
  return c.final_softcap > 0 ? tanh(x / c.final_softcap) * c.final_softcap : x;
}

Array Pass::norm(const std::string& name, const Array& x) {
  const Shape shape = {x.shape(-1)};
  const Array w = weights().vector(weight(name), shape);
  if (config().norm == Norm::rms) {
    const int64_t k = x.shape(-1);
    if (!joins(x) || k % 32 != 0 || x.ndim() != 2) return rms_norm(x, w, config().norm_eps);
    const Array rows = x * w;
    const int64_t piece = piece_of(x);
    const Array squares = sum(square(reshape(x, {x.shape(0), k / piece, piece})), {-1});
    const Array factor = rsqrt(sum(squares, {-1}, true) * (1.0 / static_cast<double>(k)) + config().norm_eps);
    const Array normed = rows * factor;
    factored_[normed.node().get()] = {normed, rows, factor};
    return normed;
  }
  const Array b = weights().has(bias(name)) ? weights().vector(bias(name), shape) : Array();
  return layer_norm(x, w, b, config().norm_eps);
}

int64_t Pass::piece_of(const Array& x) {
  return std::clamp<int64_t>(x.device().backend().least_tile(), 16, 32);
}

bool Pass::joins(const Array& x) const {
  return batch_.size() <= x.device().backend().joined_rows();
}

bool Pass::takes_codes(const Array& x) const {
  return !state_.exact && x.device().backend().prefers_codes();
}

const Array& Pass::codes_of(const Array& x, int64_t k, int64_t bits) {
  Codes& of_x = codes_[{x.node().get(), bits}];
  if (!of_x.codes) of_x = {x, call("activation_codes", {reshape(x, {-1, k})}, {{"bits", bits}})};
  return of_x.codes;
}

bool Pass::is_step() const {
  return std::ranges::adjacent_find(batch_.sequences) == batch_.sequences.end();
}

bool Pass::by_halves(const Array& rows, const Matrix& m) const {
  const Backend& backend = rows.device().backend();
  const int64_t pays = backend.halves_rows(), least = is_step() ? pays : std::max(pays, kShortText);
  return !state_.exact && pays > 0 && rows.shape(0) >= least &&
         (m.is_packed() || m.data.dtype() == DType::f16) &&
         static_cast<uint64_t>(m.n * m.k) * size_of(DType::f16) <= backend.most_bytes();
}

Array Pass::times_halves(const Array& x, const Array& rows, const Matrix& m) {
  constexpr double kShift = 16;  // a few models have activations beyond the range of halves
  Codes& of_x = codes_[{x.node().get(), kHalves}];
  if (!of_x.codes) of_x = {x, as(rows * (1 / kShift), DType::f16)};
  const Array y = m.is_packed() ? call("qmatmul_halves", {of_x.codes, m.data}, packed_attrs(m))
                                : call("matmul_batched", {of_x.codes, transpose(m.data, 0, 1)},
                                       {{"dtype", std::string(name_of(DType::f32))}});
  return y * kShift;
}

Array Pass::times(const Array& given, const Matrix& m, int64_t bits) {
  const auto factored = factored_.find(given.node().get());
  const Array& x = factored == factored_.end() ? given : factored->second.rows;
  const Array rows = reshape(x, {-1, m.k});
  Array y;
  if (bits == kBits && by_halves(rows, m)) {
    y = times_halves(x, rows, m);
  } else if (!m.is_packed()) {
    y = call("matmul_batched", {rows, transpose(m.data, 0, 1)});
  } else {
    Attrs attrs = packed_attrs(m);
    if (!takes_codes(x)) {
      y = call("qmatmul_packed", {rows, m.data}, attrs);
    } else {
      attrs.set("bits", bits);
      y = call("qmatmul_codes", {codes_of(x, m.k, bits), m.data}, attrs);
    }
  }
  return factored == factored_.end() ? y : y * factored->second.factor;
}

Array Pass::with_bias(const std::string& name, const Array& y) {
  return weights().has(bias(name)) ? y + weights().vector(bias(name), {y.shape(-1)}) : y;
}

Array Pass::product(const std::string& name, const Array& x, int64_t n, int64_t bits) {
  const int64_t k = x.shape(-1);
  Shape shape = x.shape();
  shape.back() = n;
  Array y = times(x, weights().matrix(weight(name), n, k), bits);
  if (weights().has(scale(name))) y = y * weights().vector(scale(name), {1});
  for (const Weights::Adapter& adapter : weights().adapters(weight(name)))
    y = y + linear(linear(reshape(x, {-1, k}), adapter.a), adapter.b) * adapter.scale;
  return with_bias(name, reshape(y, shape));
}

std::vector<Array> Pass::products(const std::vector<std::string>& names, const Array& x,
                                  const std::vector<int64_t>& n) {
  std::vector<std::string> tensors;
  for (const std::string& name : names) tensors.push_back(weight(name));
  std::vector<Array> parts;
  if (!weights().are_alike(tensors)) {
    for (size_t i = 0; i < names.size(); ++i) parts.push_back(product(names[i], x, n[i]));
    return parts;
  }
  parts = split(times(x, weights().joined(tensors, n, x.shape(-1))), n, -1);
  for (size_t i = 0; i < names.size(); ++i) parts[i] = with_bias(names[i], parts[i]);
  return parts;
}

Array Pass::gated_product(const std::string& gate, const std::string& up, const Array& x, int64_t n) {
  const std::vector<std::string> tensors = {weight(gate), weight(up)};
  if (!weights().are_alike(tensors) || weights().has(bias(gate)) || weights().has(bias(up)))
    return activate(product(gate, x, n)) * product(up, x, n);
  // On a GPU rows take turns, so that what belongs together is near.
  const int64_t turn = x.device().backend().joined_rows() > 0 && n % 32 == 0 ? piece_of(x) : n;
  const Array both =
      reshape(times(x, weights().joined(tensors, {n, n}, x.shape(-1), turn)), {-1, n / turn, 2, turn});
  const auto part = [&](int64_t i) { return slice_dim(both, 2, i, i + 1); };
  Shape shape = x.shape();
  shape.back() = n;
  return reshape(activate(part(0)) * part(1), shape);
}

Array Pass::expert_product(const std::string& name, const Array& x, const Array& chosen, int64_t out) {
  const int64_t k = x.shape(-1), count = config().experts.count, tokens = chosen.shape(0),
                used = chosen.shape(1);
  const Matrix& m = weights().stack(weight(name), count, out, k);
  const Array rows = reshape(x, {-1, k}), ids = reshape(chosen, {tokens * used});
  Attrs attrs{{"n", out}, {"k", k}, {"experts", count}};
  if (m.is_packed()) attrs.set("type", std::string(quant::traits(m.type).name));
  const bool codes = m.is_packed() && takes_codes(x);
  if (codes) attrs.set("bits", kBits);
  Array y = reshape(call("expert_matmul", {codes ? codes_of(x, k, kBits) : rows, m.data, ids}, attrs),
                    {tokens, used, out});
  if (weights().has(scale(name)))
    y = y * reshape(index_select(weights().vector(scale(name), {count}), ids, 0), {tokens, used, 1});
  if (weights().has(bias(name)))
    y = y + reshape(index_select(weights().vector(bias(name), {count, out}), ids, 0), {tokens, used, out});
  return y;
}

Array Pass::activate(const Array& x) const {
  switch (config().activation) {
    case Activation::silu:
      return silu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return call("gelu", {x}, {{"approximate", std::string("tanh")}});
    case Activation::relu:
      return relu(x);
    case Activation::relu_squared:
      return square(relu(x));
  }
  return x;
}

Array Pass::slopes(int64_t heads, const Device& device) {
  Array& made = slopes_[{&device.backend(), heads}];
  if (!made) {
    // Of the powers of two up to `heads`, then those between them.
    std::vector<float> slopes;
    const auto whole = static_cast<double>(std::bit_floor(static_cast<uint64_t>(heads)));
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<double>(h);
      slopes.push_back(
          static_cast<float>(at < whole ? std::exp2(-config().alibi / whole * (at + 1))
                                        : std::exp2(-config().alibi / whole / 2 * (2 * (at - whole) + 1))));
    }
    made = Array::from_vector(slopes, {heads}, device);
  }
  return made;
}

const RopeTable& Pass::rope(int index, const Device& device) {
  const std::pair key{static_cast<const Backend*>(&device.backend()), index};
  const auto found = ropes_.find(key);
  if (found != ropes_.end()) return found->second;
  const RopeConfig& rope = config().ropes[static_cast<size_t>(index)];
  if (rope.scaling == "dynamic")
    return ropes_.emplace(key, rope_table(rope, batch_.positions, lengths(batch_), device)).first->second;
  auto& tables = state_.ropes[batch_.is_long ? 1 : 0];
  auto table = tables.find(key);
  if (table == tables.end())
    table = tables.emplace(key, rope_table(rope, state_.context, batch_.is_long, device)).first;
  RopeTable rows = table->second;
  rows.turns = index_select(rows.turns, positions(device), 0);
  return ropes_.emplace(key, std::move(rows)).first->second;
}

Layer::Layer(Pass& p, size_t i)
    : pass(p),
      index(i),
      config(p.config().layers[i]),
      device(p.state().devices[i]),
      prefix_(fmt::format("blk.{}.", i)) {}

Heads Layer::heads(const Array& x) const {
  const Config& c = pass.config();
  const int64_t n = x.shape(0), q = config.heads * c.head_dim, k = config.kv_heads * c.head_dim,
                v = config.kv_heads * c.value_dim;
  std::vector<Array> parts;
  if (config.rope >= 0) pass.rope(config.rope, device);  // there before the products whose results turn
  if (has("attn_qkv"))
    parts = split(product("attn_qkv", x, q + k + v), {q, k, v}, 1);
  else
    parts = products({"attn_q", "attn_k", "attn_v"}, x, {q, k, v});
  if (c.clamp_qkv > 0)
    for (Array& part : parts) part = clamp(part, -c.clamp_qkv, c.clamp_qkv);
  return {reshape(parts[0], {n, config.heads, c.head_dim}),
          reshape(parts[1], {n, config.kv_heads, c.head_dim}),
          reshape(parts[2], {n, config.kv_heads, c.value_dim})};
}

void Layer::turn(Heads& heads) const {
  if (config.rope < 0) return;
  const RopeTable& rows = pass.rope(config.rope, device);
  heads.q = rotate(heads.q, rows);
  heads.k = rotate(heads.k, rows);
}

AttentionForm Layer::form() const {
  const Config& c = pass.config();
  return {.scale = c.attention_scale, .softcap = c.attention_softcap, .window = config.window};
}

Array Layer::attend(const Heads& heads, const AttentionForm& form) const {
  State& state = pass.state();
  LayerCache& cache = this->cache();
  const DType dtype = dtype_of(state.cache_type);
  const std::string type(dtype == DType::u8 ? quant::traits(state.cache_type).name : "");
  const auto put = [&](Array& to, const Array& x) {
    if (!type.empty() && x.shape(2) % quant::traits(state.cache_type).block_elements != 0)
      fail(ErrorKind::unsupported, "[model] heads of {} columns are not whole blocks of {}: --cache-type f16",
           x.shape(2), type);
    const Array floats = reshape(x, {x.shape(0), -1});
    const Array rows = type.empty() ? as(floats, dtype) : call("quantize", {floats}, {{"type", type}});
    if (!to) {
      to = as(zeros({state.rows, rows.shape(1)}, {DType::f32, device}) + 0.0, dtype);  // in memory of its own
      eval(to);
    }
    to = call("put_rows", {to, pass.rows(device), rows});
  };
  put(cache.keys, heads.k);
  put(cache.values, heads.v);
  const Config& c = pass.config();
  return call("cached_attention",
              {heads.q, cache.keys, cache.values, pass.key_rows(device), pass.key_positions(device),
               pass.key_sequences(device), pass.positions(device), pass.sequences(device), form.sinks,
               c.alibi > 0 ? pass.slopes(heads.q.shape(1), device) : Array()},
              {{"scale", form.scale},
               {"softcap", form.softcap},
               {"window", form.window},
               {"pitch", pass.batch().pitch},
               {"causal", c.causal},
               {"type", type}});
}

// ---- Shared parts.

Array attention(const Layer& layer, const Array& x) {
  Heads heads = layer.heads(x);
  // One norm for every head, one for each, or one over all of them.
  const auto normed = [&](const std::string& name, const Array& part) {
    if (!layer.has(name)) return part;
    const Shape shape = layer.pass.weights().shape(layer.name(name) + ".weight");
    if (shape == Shape{part.shape(-1)}) return layer.norm(name, part);
    if (shape.size() == 2)
      return layer_norm(part, {}, {}, layer.pass.config().norm_eps) *
             layer.vector(name + ".weight", {part.shape(1), part.shape(2)});
    return reshape(layer.norm(name, reshape(part, {part.shape(0), -1})), part.shape());
  };
  heads.q = normed("attn_q_norm", heads.q);
  heads.k = normed("attn_k_norm", heads.k);
  layer.turn(heads);
  return layer.product("attn_output", layer.attend(heads, layer.form()), layer.pass.config().width);
}

Array feed_forward(const Layer& layer, const Array& x) {
  const int64_t hidden = layer.config.hidden, width = layer.pass.config().width;
  if (layer.has("ffn_gate"))
    return layer.product(
        "ffn_down", layer.pass.gated_product(layer.name("ffn_gate"), layer.name("ffn_up"), x, hidden), width);
  const int64_t rows = layer.pass.weights().file().rows(layer.name("ffn_up.weight"));
  const Array up = layer.product("ffn_up", x, rows);
  if (rows == 2 * hidden) {
    const std::vector<Array> halves = split(up, {hidden, hidden}, -1);
    return layer.product("ffn_down", layer.pass.activate(halves[0]) * halves[1], width);
  }
  return layer.product("ffn_down", layer.pass.activate(up), width);
}

Array expert_feed_forward(const Layer& layer, const Array& x) {
  const Config& c = layer.pass.config();
  const Experts& e = c.experts;
  const int64_t n = x.shape(0);
  const Array scores = layer.product("ffn_gate_inp", x, e.count);
  Array likely = e.softmax_after ? scores : e.sigmoid ? sigmoid(scores) : softmax(scores, -1);
  Array ranked = likely;
  if (layer.pass.weights().has(layer.name("exp_probs_b.bias")))
    ranked = ranked + layer.vector("exp_probs_b.bias", {e.count});
  if (e.groups > 1) {
    const Array by_group = reshape(ranked, {n, e.groups, -1});
    const Array best = topk(sum(topk(by_group, e.group_votes).values, {-1}), e.used_groups).indices;
    const Array in =
        call("any", {eq(unsqueeze(best, 1), unsqueeze(iota(e.groups, best), 1))}, {{"dims", Ints{-1}}});
    ranked = reshape(
        where(unsqueeze(in, -1), by_group, scalar_like(ranked, -std::numeric_limits<double>::infinity())),
        {n, e.count});
  }
  const Array chosen = topk(ranked, e.used).indices;
  Array share = gather(likely, chosen, -1);
  if (e.softmax_after)
    share = softmax(share, -1);
  else if (e.normalize)
    share = share / sum(share, {-1}, true);
  if (e.scale != 1) share = share * e.scale;

  const Array one = reshape(x, {n, 1, c.width});
  Array gate, up;
  if (layer.has("ffn_gate_up_exps")) {
    const std::vector<Array> halves =
        split(layer.expert_product("ffn_gate_up_exps", one, chosen, 2 * e.width), {e.width, e.width}, -1);
    gate = halves[0], up = halves[1];
  } else {
    gate = layer.expert_product("ffn_gate_exps", one, chosen, e.width);
    up = layer.expert_product("ffn_up_exps", one, chosen, e.width);
  }
  const Array down = layer.expert_product("ffn_down_exps", layer.pass.activate(gate) * up, chosen, c.width);
  Array y = sum(down * unsqueeze(share, -1), {1});
  if (layer.has("ffn_up_shexp")) {
    const int64_t hidden = layer.pass.weights().file().rows(layer.name("ffn_up_shexp.weight"));
    const Array inner =
        layer.pass.gated_product(layer.name("ffn_gate_shexp"), layer.name("ffn_up_shexp"), x, hidden);
    Array shared = layer.product("ffn_down_shexp", inner, c.width);
    if (layer.has("ffn_gate_inp_shexp"))
      shared = shared * sigmoid(sum(x * layer.vector("ffn_gate_inp_shexp.weight", {c.width}), {-1}, true));
    y = y + shared;
  }
  return y;
}

}  // namespace weft::llm
