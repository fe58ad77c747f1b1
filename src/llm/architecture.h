#pragma once

#include <string_view>
#include <vector>

#include "llm/config.h"
#include "llm/pass.h"

namespace weft::llm {

/// One row per architecture. A new one is a row and, where its layers are its own, a file.
struct Architecture {
  std::string_view name;  ///< general.architecture of a GGUF file
  /// What files leave to convention.
  void (*configure)(Config& config, const ModelFile& file) = nullptr;
  /// Tokens to logits (wanted tokens, vocabulary); of a model that embeds: to its last activations.
  Array (*forward)(Pass& pass) = nullptr;
};

/// Throws ErrorKind::unsupported with the names there are.
const Architecture& find_architecture(std::string_view name, const std::string& file);
std::vector<std::string_view> architecture_names();  ///< sorted

/// The numbers of a file, with what its architecture leaves to convention.
Config config_of(const ModelFile& file);

// Rows of one family, collected by architecture.cpp.
std::vector<Architecture> llama_architectures();
std::vector<Architecture> gemma_architectures();
std::vector<Architecture> parallel_architectures();
std::vector<Architecture> gpt2_architectures();
std::vector<Architecture> gptoss_architectures();
std::vector<Architecture> deepseek2_architectures();
std::vector<Architecture> lfm2_architectures();
std::vector<Architecture> qwen3next_architectures();
std::vector<Architecture> bert_architectures();

/// Norm, attention, residual, norm, feed-forward part, residual, with the norms that the file has.
Array decoder(Pass& pass);

}  // namespace weft::llm
