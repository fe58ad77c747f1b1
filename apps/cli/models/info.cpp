#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "llm/architecture.h"
#include "llm/room.h"
#include "models/commands.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

using nlohmann::ordered_json;

struct Flags {
  std::string model;
  bool tensors = false, json = false;
};

/// Bytes of keys and values for one token, as f16.
uint64_t cache_bytes(const llm::ModelFile& file, const llm::Config& c) {
  int64_t elements = 0;
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const llm::CacheColumns columns = llm::cache_columns(file, c, i);
    elements += columns.keys + columns.values;
  }
  return 2 * static_cast<uint64_t>(elements);
}

ordered_json facts(const llm::ModelFile& file, const llm::Config& c) {
  std::map<std::string, int> types;
  for (const auto& [name, tensor] : file.tensors) ++types[std::string(quant::traits(tensor.type).name)];
  ordered_json out = {{"name", file.name},
                      {"architecture", c.architecture},
                      {"parameters", file.parameters()},
                      {"bytes", file.bytes()},
                      {"layers", c.layers.size()},
                      {"width", c.width},
                      {"heads", c.layers[0].heads},
                      {"key_heads", c.layers[0].kv_heads},
                      {"head_dim", c.head_dim},
                      {"vocabulary", c.vocabulary},
                      {"context", c.context},
                      {"cache_bytes_per_token", cache_bytes(file, c)}};
  if (c.experts.count > 0) out["experts"] = fmt::format("{} of {}", c.experts.used, c.experts.count);
  out["tensor_types"] = types;
  const auto memory = [&](int64_t context) {
    return file.bytes() + static_cast<uint64_t>(context) * cache_bytes(file, c) +
           static_cast<uint64_t>(c.vocabulary) * 4;
  };
  const int64_t usual = std::min<int64_t>(c.context, 4096);
  out["memory"] = {{"context", usual}, {"bytes", memory(usual)}, {"bytes_full_context", memory(c.context)}};
  return out;
}

std::string shown(const std::string& key, const ordered_json& value) {
  if (key == "bytes" || key == "cache_bytes_per_token") return term::bytes(value.get<uint64_t>());
  if (key == "parameters") return fmt::format("{:.1f} M", static_cast<double>(value.get<uint64_t>()) / 1e6);
  if (key == "memory")
    return fmt::format("{} with a context of {}, {} with all of it; on a GPU or the CPU",
                       term::bytes(value["bytes"].get<uint64_t>()), value["context"].get<int64_t>(),
                       term::bytes(value["bytes_full_context"].get<uint64_t>()));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

int info(const Flags& flags) {
  const llm::ModelFile file = llm::ModelFile::open(pull::resolve_model(flags.model));
  ordered_json out = facts(file, llm::config_of(file));
  if (flags.tensors)
    for (const auto& [name, tensor] : file.tensors)
      out["tensors"].push_back(
          {{"name", name}, {"type", quant::traits(tensor.type).name}, {"shape", tensor.shape}});
  if (flags.json) {
    fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
    return 0;
  }
  for (const auto& [key, value] : out.items())
    if (key != "tensors") fmt::print("{:22} {}\n", key, shown(key, value));
  if (flags.tensors) {
    term::Table table({"tensor", "type", "shape", "size"});
    for (const auto& [name, tensor] : file.tensors)
      table.add({name, std::string(quant::traits(tensor.type).name), to_string(tensor.shape),
                 term::bytes(tensor.bytes())});
    fmt::print("\n{}", table.text(term::colours(stdout)));
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("info", "What is in a model, and the memory it needs");
  command->add_option("model,-m,--model", flags->model, "A GGUF file, a folder of Hugging Face's, or a name")
      ->required();
  command->add_flag("--tensors", flags->tensors, "Every tensor, too");
  command->add_flag("--json", flags->json, "For programs: one JSON object");
  command->callback([&status, flags] { status = info(*flags); });
}

}  // namespace weft::cli
