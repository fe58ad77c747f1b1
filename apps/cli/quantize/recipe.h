#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/quant.h"
#include "weft/shape.h"

/// Which type each tensor of a model gets. Names, file type numbers and choices are llama-quantize's, so that
/// a q4_k_m file is what people expect of one.
namespace weft::quantize {

struct Recipe {
  std::string_view name;  ///< "q4_k_m"
  uint32_t file_type;     ///< general.file_type
  quant::Type base;       ///< of most matrices
};

/// In any case; "q4_k" is q4_k_m. Throws ErrorKind::invalid with the names there are.
const Recipe& recipe_from_name(std::string_view name);
std::string recipe_names();

struct Model {
  std::string architecture;
  int64_t layers = 0, experts = 0, heads = 0, kv_heads = 0;
};
struct Tensor {
  std::string name;
  Shape shape;
  quant::Type type;
};

/// Layer by layer, what belongs to none first: the order in which choices are made and files are written.
void sort_tensors(std::vector<Tensor>& tensors);

/// Types for sorted tensors. Vectors, norms, routers and other small or delicate tensors stay as they are, or
/// become what `kept` says; `pure` gives all others the recipe's base. Where rows are no whole blocks a type
/// of smaller blocks is taken, at worst f16. `important`: it is known which columns are.
std::vector<quant::Type> choose_types(const Recipe& recipe, const Model& model,
                                      std::span<const Tensor> tensors, bool pure,
                                      std::optional<quant::Type> kept = {}, bool important = false);

/// True for types of so few bits that a tensor is of no use unless it is known which columns are important.
bool needs_importance(const Tensor& tensor, quant::Type type);

}  // namespace weft::quantize
