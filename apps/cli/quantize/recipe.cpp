#include "quantize/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"

namespace weft::quantize {
namespace {

using quant::Type;

constexpr Recipe kRecipes[] = {
    {"f32", 0, Type::f32},          {"f16", 1, Type::f16},          {"bf16", 32, Type::bf16},
    {"q8_0", 7, Type::q8_0},        {"q6_k", 18, Type::q6_k},       {"q5_k_m", 17, Type::q5_k},
    {"q5_k_s", 16, Type::q5_k},     {"q5_1", 9, Type::q5_1},        {"q5_0", 8, Type::q5_0},
    {"q4_k_m", 15, Type::q4_k},     {"q4_k_s", 14, Type::q4_k},     {"q4_1", 3, Type::q4_1},
    {"q4_0", 2, Type::q4_0},        {"iq4_nl", 25, Type::iq4_nl},   {"iq4_xs", 30, Type::iq4_xs},
    {"mxfp4", 38, Type::mxfp4},     {"mxfp4_moe", 38, Type::mxfp4}, {"nvfp4", 39, Type::nvfp4},
    {"q3_k_l", 13, Type::q3_k},     {"iq3_m", 27, Type::iq3_s},     {"iq3_s", 26, Type::iq3_s},
    {"q3_k_m", 12, Type::q3_k},     {"q3_k_s", 11, Type::q3_k},     {"q2_k", 10, Type::q2_k},
    {"tq2_0", 37, Type::tq2_0},     {"tq1_0", 36, Type::tq1_0},     {"iq3_xs", 22, Type::iq3_s},
    {"iq3_xxs", 23, Type::iq3_xxs}, {"iq2_m", 29, Type::iq2_s},     {"iq2_s", 28, Type::iq2_xs},
    {"iq2_xs", 20, Type::iq2_xs},   {"iq2_xxs", 19, Type::iq2_xxs}, {"iq1_m", 31, Type::iq1_m},
    {"iq1_s", 24, Type::iq1_s},
};

// Parts of names of matrices that stay as they are: small ones, and those whose errors are not forgiven.
constexpr std::string_view kKept[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",  // routers
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",  // RWKV
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",  // images and sound
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool may_change(const Tensor& tensor) {
  const auto first = std::ranges::find_if(tensor.shape, [](int64_t size) { return size != 1; });
  return tensor.shape.end() - first >= 2 && tensor.name.ends_with("weight") &&
         tensor.name != "position_embd.weight" && tensor.name != "token_types.weight" &&
         std::ranges::none_of(kKept, [&](std::string_view part) { return contains(tensor.name, part); });
}

enum class Part { output, embedding, value, key, query, attention_output, down, gate_or_up, other };

Part part_of(std::string_view name) {
  if (name == "output.weight") return Part::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Part::embedding;
  for (const std::string_view value : {"attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"})
    if (contains(name, value)) return Part::value;
  if (contains(name, "attn_k.weight")) return Part::key;
  if (contains(name, "attn_q.weight")) return Part::query;
  if (contains(name, "attn_output.weight")) return Part::attention_output;
  if (contains(name, "ffn_down")) return Part::down;
  if (contains(name, "ffn_gate") || contains(name, "ffn_up")) return Part::gate_or_up;
  return Part::other;
}

/// -1 for a tensor of no layer.
int64_t layer_of(std::string_view name) {
  int64_t layer = -1;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

/// The first and the last eighth of the layers, and every third between them.
bool wants_more_bits(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

Type with_smaller_blocks(Type type) {
  switch (type) {
    case Type::iq1_s:
    case Type::iq1_m:
    case Type::iq2_xxs:
    case Type::iq2_xs:
    case Type::iq2_s:
    case Type::iq3_xxs:
    case Type::iq3_s:
    case Type::iq4_xs:
      return Type::iq4_nl;
    case Type::q4_k:
      return Type::q5_0;
    case Type::q5_k:
      return Type::q5_1;
    case Type::q6_k:
      return Type::q8_0;
    case Type::nvfp4:
      return Type::mxfp4;
    default:
      return quant::traits(type).block_elements > 32 ? Type::q4_0 : type;
  }
}

bool fits(const Tensor& tensor, Type type) {
  return tensor.shape.back() % quant::traits(type).block_elements == 0;
}

Type fitting(const Tensor& tensor, Type type) {
  if (fits(tensor, type)) return type;
  const Type smaller = with_smaller_blocks(type);
  return fits(tensor, smaller) ? smaller : Type::f16;
}

/// Makes the choices for one tensor after the other; some depend on how many of a kind there were before.
class Mixture {
 public:
  Mixture(const Recipe& recipe, const Model& model, std::span<const Tensor> tensors, bool important)
      : recipe_(recipe), model_(model), important_(important), falcon_(model.architecture == "falcon") {
    for (const Tensor& tensor : tensors) {
      values_ += part_of(tensor.name) == Part::value;
      tied_ = tied_ && part_of(tensor.name) != Part::output;
    }
  }

  Type choose(const Tensor& tensor) {
    const Part part = part_of(tensor.name);
    if (part == Part::output || (tied_ && part == Part::embedding)) return output(tensor);
    if (is("mxfp4_moe"))
      return tensor.shape.size() > 2 && tensor.shape[tensor.shape.size() - 3] > 1 ? Type::mxfp4 : Type::q8_0;
    if (is_two_bit() && part != Part::embedding) return two_bit(part);
    const int64_t layer = layer_of(tensor.name);
    switch (part) {
      case Part::embedding:
        return embedding();
      case Part::value:
        return value(value_++);
      case Part::key:
        return model_.experts == 8 ? Type::q8_0 : key_or_query();
      case Part::query:
        return key_or_query();
      case Part::attention_output:
        return attention_output();
      case Part::down: {
        const int64_t before = down_++;
        return down(model_.experts > 1 && layer >= 0 ? layer : before);
      }
      case Part::gate_or_up: {
        const bool middle = layer >= model_.layers / 8 && layer < 7 * model_.layers / 8;
        return is("iq3_xs") && middle ? Type::iq3_xxs : recipe_.base;
      }
      default:
        return recipe_.base;
    }
  }

 private:
  bool is(std::string_view name) const { return recipe_.name == name; }
  bool is_iq4() const { return is("iq4_nl") || is("iq4_xs"); }
  bool is_iq1() const { return is("iq1_s") || is("iq1_m"); }
  bool is_larger_iq2() const { return is("iq2_s") || is("iq2_m"); }
  bool is_two_bit() const { return is_iq1() || is_larger_iq2() || is("iq2_xxs") || is("iq2_xs"); }
  bool values_are_shared() const { return model_.kv_heads > 0 && model_.heads / model_.kv_heads >= 4; }

  /// What these recipes give to parts that cannot bear so few bits.
  Type two_bit(Part part) {
    const Type more = is_larger_iq2() ? Type::iq3_s : Type::q2_k;
    switch (part) {
      case Part::value:
        return values_are_shared() || model_.experts >= 4 ? Type::q4_k : more;
      case Part::key:
        return model_.experts == 8 ? Type::q4_k : recipe_.base;
      case Part::down:
        return down_++ < model_.layers / 8 ? more : recipe_.base;
      case Part::attention_output:
        if (model_.experts == 8) return Type::q5_k;
        return is_iq1() ? Type::iq2_xxs : is_larger_iq2() ? Type::iq3_s : recipe_.base;
      default:
        return recipe_.base;
    }
  }

  Type embedding() const {
    if (is("tq1_0") || is("tq2_0")) return Type::q4_k;
    if (is_larger_iq2() || is("iq3_xxs")) return Type::iq3_s;
    return is_two_bit() ? Type::q2_k : recipe_.base;
  }

  Type key_or_query() const {
    return is("iq3_xs") ? Type::iq3_xxs : is("iq3_xxs") ? Type::iq2_s : recipe_.base;
  }

  Type output(const Tensor& tensor) const {
    const bool fp4 = recipe_.base == Type::mxfp4 || recipe_.base == Type::nvfp4;
    if (fp4 || falcon_ || !fits(tensor, recipe_.base) || is("q8_0")) return Type::q8_0;
    return is_two_bit() || is("iq3_xxs") ? Type::q5_k : Type::q6_k;
  }

  /// Values of attention are small where heads share them, and errors in them weigh most.
  Type value(int64_t number) const {
    const bool shared = values_are_shared();
    const bool large =
        model_.architecture == "llama" && model_.layers == 80 && model_.heads != model_.kv_heads;
    Type type = recipe_.base;
    if (is("q2_k")) type = shared ? Type::q4_k : Type::q3_k;
    if (is("iq3_m") || ((is("iq3_s") || is("iq3_xs") || is("iq3_xxs")) && shared)) type = Type::q4_k;
    if (is("q3_k_m")) type = number < 2 ? Type::q5_k : Type::q4_k;
    if (is("q3_k_l") || (is_iq4() && shared) || (is("q4_k_s") && number < 4)) type = Type::q5_k;
    if ((is("q4_k_m") || is("q5_k_m")) && wants_more_bits(number, values_)) type = Type::q6_k;
    if (large && (type == Type::q3_k || type == Type::q4_k)) type = Type::q5_k;
    return model_.experts == 8 ? Type::q8_0 : type;
  }

  Type attention_output() const {
    if (falcon_) return is("q3_k_l") ? Type::q4_k : recipe_.base;
    if (model_.experts == 8) {
      constexpr std::string_view kMore[] = {"q2_k",   "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_nl",
                                            "iq4_xs", "iq3_s",  "iq3_m",  "iq3_xs", "iq3_xxs"};
      return std::ranges::find(kMore, recipe_.name) != std::end(kMore) ? Type::q5_k : recipe_.base;
    }
    if (is("q3_k_m") || is("iq3_m")) return Type::q4_k;
    if (is("iq3_xxs")) return Type::iq3_s;
    return is("q2_k") ? Type::q3_k : is("q3_k_l") ? Type::q5_k : recipe_.base;
  }

  Type down(int64_t layer) const {
    const int64_t layers = model_.layers;
    const bool more = wants_more_bits(layer, layers), first = layer < layers / 8;
    if (is("q2_k")) return Type::q3_k;
    if (is("iq3_m")) return first || (model_.experts == 8 && more) ? Type::q4_k : recipe_.base;
    if (is("q3_k_m")) return layer < layers / 16 ? Type::q5_k : !falcon_ || more ? Type::q4_k : Type::q3_k;
    if (is("q3_k_l")) return falcon_ ? Type::q4_k : Type::q5_k;
    if (is("q4_k_m") && falcon_) return layer < layers / 16 ? Type::q6_k : more ? Type::q5_k : Type::q4_k;
    if (is("q4_k_m") || is("q5_k_m")) return more ? Type::q6_k : recipe_.base;
    if (first && ((is_iq4() && !important_) || (is("q4_k_s") && !falcon_))) return Type::q5_k;
    if (first && important_ && (is("q4_0") || is("q5_0"))) return is("q4_0") ? Type::q4_1 : Type::q5_1;
    return recipe_.base;
  }

  const Recipe& recipe_;
  const Model& model_;
  bool important_, falcon_, tied_ = true;  // tied: the embedding is the output matrix, too
  int64_t values_ = 0, value_ = 0, down_ = 0;
};

}  // namespace

const Recipe& recipe_from_name(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return 'A' <= c && c <= 'Z' ? c - 'A' + 'a' : c; });
  if (lower == "q3_k" || lower == "q4_k" || lower == "q5_k") lower += "_m";
  for (const Recipe& recipe : kRecipes)
    if (recipe.name == lower) return recipe;
  fail(ErrorKind::invalid, "[quantize] no type is called '{}': use one of {}", name, recipe_names());
}

std::string recipe_names() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return fmt::format("{}", fmt::join(names, " "));
}

void sort_tensors(std::vector<Tensor>& tensors) {
  std::ranges::sort(tensors, {},
                    [](const Tensor& t) { return std::pair(layer_of(t.name), std::string_view(t.name)); });
}

std::vector<Type> choose_types(const Recipe& recipe, const Model& model, std::span<const Tensor> tensors,
                               bool pure, std::optional<Type> kept, bool important) {
  const bool plain = quant::traits(recipe.base).block_elements == 1;
  Mixture mixture(recipe, model, tensors, important);
  std::vector<Type> types;
  for (const Tensor& tensor : tensors) {
    if (!may_change(tensor))
      types.push_back(kept.value_or(tensor.type));
    else if (plain || pure)
      types.push_back(fitting(tensor, recipe.base));
    else
      types.push_back(fitting(tensor, mixture.choose(tensor)));
  }
  return types;
}

bool needs_importance(const Tensor& tensor, Type type) {
  const Part part = part_of(tensor.name);
  if (part == Part::embedding || part == Part::output) return false;
  return type == Type::iq1_s || type == Type::iq1_m || type == Type::iq2_xxs || type == Type::iq2_xs ||
         type == Type::iq2_s || type == Type::iq3_xxs;
}

}  // namespace weft::quantize
