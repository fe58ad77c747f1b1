#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

/// What happens to a tensor of Hugging Face's on its way to GGUF's form.
enum class Change {
  none,
  plus_one,    ///< norms that are stored less 1
  transposed,  ///< (k, n) -> (n, k)
  turned_q,    ///< rows of each head: halves -> neighbours
  turned_k,
  qkv_by_head,   ///< rows (heads, 3, dim) -> (3, heads, dim)
  qkv_by_group,  ///< rows (key heads, queries + 2, dim) -> queries, keys, values
  squeezed,      ///< dims of size 1 go
  minus_exp,     ///< x -> -exp(x)
};

/// "model.layers.N.mlp.experts.E.up_proj" -> "blk.N.ffn_up_exps". Without ".weight" and ".bias", unless the
/// tensor itself has no such ending. Matrices with an E are stacked.
struct NameRule {
  std::string_view from, to;
  Change change = Change::none;
};

/// One row per `model_type` of a config.json.
struct HfFamily {
  std::string_view model_type, architecture;
  std::vector<NameRule> rules;  ///< before the common ones
  Change norms = Change::none;  ///< of every tensor whose name ends in "norm"
};

/// Throws ErrorKind::unsupported with the names there are.
const HfFamily& find_hf_family(std::string_view model_type, const std::string& file);
/// The first row of an architecture.
const HfFamily& find_hf_family_of(std::string_view architecture);

struct NewName {
  std::string name;
  Change change = Change::none;
  int64_t expert = -1;
};
/// The GGUF name of a tensor's stem; nothing for what models do not compute with.
std::optional<NewName> gguf_name(const HfFamily& family, std::string_view stem);

}  // namespace weft::llm
