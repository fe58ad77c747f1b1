#pragma once

#include <nlohmann/json_fwd.hpp>

#include "llm/model_file.h"

namespace weft::llm {

/// The values of a config.json under the keys of a GGUF file, with a few more where the config says what GGUF
/// leaves to convention. `rope_divisors`: of llama3 and longrope, which GGUF files have as tensors.
struct HfValues {
  std::map<std::string, ModelFile::Value, std::less<>> values;
  std::map<std::string, std::vector<float>> divisors;  ///< by the tensor's name
};
HfValues hf_values(const nlohmann::json& config, const std::string& file);

}  // namespace weft::llm
