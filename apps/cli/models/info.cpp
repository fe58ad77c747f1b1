#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/select.h"
#include "base/error.h"
#include "gpu/probe.h"
#include "io/safetensors.h"
#include "llm/architecture.h"
#include "models/commands.h"
#include "models/memory.h"
#include "models/metadata.h"
#include "pull/pull.h"
#include "term.h"

namespace weft::cli {
namespace {

using nlohmann::ordered_json;

/// Names and templates need not be UTF-8, which JSON is.
std::string text_of(const ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

struct Flags {
  std::string model;
  bool tensors = false, json = false;
};

/// What is known from the numbers of an architecture.
void add_shape(ordered_json& out, const llm::ModelFile& file, const llm::Config& c) {
  out["layers"] = c.layers.size();
  out["width"] = c.width;
  out["heads"] = c.layers[0].heads;
  out["key_heads"] = c.layers[0].kv_heads;
  out["head_dim"] = c.head_dim;
  out["vocabulary"] = c.vocabulary;
  out["context"] = c.context;
  out["cache_bytes_per_token"] = cache_bytes(file, c);
  if (c.experts.count > 0) out["experts"] = fmt::format("{} of {}", c.experts.used, c.experts.count);
}

/// The need, and for every device whether it has that much; null where that is not known.
ordered_json memory_facts(const llm::ModelFile& file, const llm::Config& c) {
  const int64_t usual = std::min<int64_t>(c.context, 4096);
  const uint64_t need = needed_memory(file, c, usual);
  uint64_t largest = 0;
  for (const auto& [name, tensor] : file.tensors) largest = std::max(largest, tensor.bytes());
  ordered_json devices = ordered_json::array();
  for (const DeviceEntry& device : list_devices(gpu::probe_all())) {
    const std::optional<uint64_t> there = memory_of(device);
    ordered_json fits;
    if (there) fits = need <= *there;
    if (!device.is_cpu() && largest > device.adapter.limits.max_buffer_size) fits = false;
    devices.push_back({{"device", device.id},
                       {"name", device.name},
                       {"bytes", need},
                       {"memory", there ? ordered_json(*there) : ordered_json()},
                       {"fits", fits}});
  }
  return {{"context", usual},
          {"bytes", need},
          {"bytes_full_context", needed_memory(file, c, c.context)},
          {"devices", devices}};
}

ordered_json facts(const std::filesystem::path& path, const llm::ModelFile& file) {
  const ordered_json metadata = metadata_of(path);
  std::map<std::string, int> types;
  for (const auto& [name, tensor] : file.tensors) ++types[std::string(quant::traits(tensor.type).name)];
  ordered_json out = {{"name", file.name},
                      {"architecture", file.architecture},
                      {"parameters", file.parameters()},
                      {"bytes", file.bytes()}};
  std::optional<llm::Config> config;
  try {
    if (file.tensors.empty()) fail(ErrorKind::unsupported, "the file has no weights");
    config = llm::config_of(file);
    add_shape(out, file, *config);
  } catch (const Error& error) {  // what is there can be shown all the same
    out["cannot_run"] = error.what();
  }
  if (const std::string kind = tokenizer_kind(path, metadata); !kind.empty()) out["tokenizer"] = kind;
  out["chat_template"] = has_chat_template(path);
  out["tensor_types"] = types;
  if (config) out["memory"] = memory_facts(file, *config);
  out["metadata"] = metadata;
  return out;
}

std::string shown(const std::string& key, const ordered_json& value) {
  if (key == "bytes" || key == "cache_bytes_per_token") return term::bytes(value.get<uint64_t>());
  if (key == "parameters") return fmt::format("{:.1f} M", static_cast<double>(value.get<uint64_t>()) / 1e6);
  if (key == "memory")
    return fmt::format("{} with a context of {}, {} with all of it",
                       term::bytes(value["bytes"].get<uint64_t>()), value["context"].get<int64_t>(),
                       term::bytes(value["bytes_full_context"].get<uint64_t>()));
  return value.is_string() ? value.get<std::string>() : text_of(value);
}

std::string shown_device(const ordered_json& device) {
  const std::string memory = device["memory"].is_null()
                                 ? "its memory is not known"
                                 : fmt::format("{} of memory", term::bytes(device["memory"].get<uint64_t>()));
  const char* fits = device["fits"].is_null() ? "" : device["fits"].get<bool>() ? "it fits: " : "too large: ";
  return fmt::format("{} ({}): {}{}", device["device"].get<std::string>(), device["name"].get<std::string>(),
                     fits, memory);
}

void print_text(const ordered_json& facts) {
  const auto line = [](std::string_view key, const std::string& value) {
    fmt::print("{:22} {}\n", key, value);
  };
  for (const auto& [key, value] : facts.items()) {
    if (key == "tensors" || key == "metadata") continue;
    line(key, shown(key, value));
    if (key == "memory")
      for (const ordered_json& device : value["devices"]) line("", shown_device(device));
  }
  if (facts["metadata"].empty()) return;
  term::Table table({"metadata", "value"});
  for (const auto& [key, value] : facts["metadata"].items())
    table.add({one_line(key), one_line(shown("", value))});
  fmt::print("\n{}", table.text(term::colours(stdout)));
}

int info(const Flags& flags) {
  const std::filesystem::path path = pull::resolve_model(flags.model);
  const llm::ModelFile file = llm::ModelFile::open(path);
  ordered_json out = facts(path, file);
  if (flags.tensors)
    for (const auto& [name, tensor] : file.tensors)
      out["tensors"].push_back(
          {{"name", name}, {"type", quant::traits(tensor.type).name}, {"shape", tensor.shape}});
  if (flags.json) {
    fmt::print("{}\n", text_of(out, 2));
    return 0;
  }
  print_text(out);
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
