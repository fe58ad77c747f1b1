#include "llm/architecture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft::llm {
namespace {

const std::map<std::string_view, Architecture>& table() {
  static const auto all = [] {
    std::map<std::string_view, Architecture> rows;
    for (const auto& family : {llama_architectures(), gemma_architectures(), parallel_architectures(),
                               gpt2_architectures(), gptoss_architectures(), deepseek2_architectures(),
                               lfm2_architectures(), qwen3next_architectures(), bert_architectures()})
      for (const Architecture& row : family) rows[row.name] = row;
    return rows;
  }();
  return all;
}

}  // namespace

const Architecture& find_architecture(std::string_view name, const std::string& file) {
  const auto found = table().find(name);
  if (found == table().end())
    fail(ErrorKind::unsupported, "[model] architecture '{}' is not known; these are: {}; it is that of {}",
         one_line(name), fmt::join(architecture_names(), ", "), file);
  return found->second;
}

Config config_of(const ModelFile& file) {
  const Architecture& row = find_architecture(file.architecture, file.name);  // before what is missing
  Config config(file);
  if (row.configure) row.configure(config, file);
  config.read_activation(file);
  config.check_heads(file);
  return config;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, row] : table()) names.push_back(name);
  return names;
}

}  // namespace weft::llm
