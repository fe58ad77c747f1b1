#include "text/chat_sources.h"

#include "base/error.h"
#include "io/gguf.h"
#include "io/json.h"

namespace weft {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

ChatSources read_gguf(const fs::path& file) {
  const std::string key = "tokenizer.chat_template";
  const Gguf gguf = Gguf::open(file);
  ChatSources sources;
  if (const auto text = gguf.text(key)) sources.emplace("default", *text);
  for (std::string_view name : gguf.texts("tokenizer.chat_templates"))
    if (const auto text = gguf.text(fmt::format("{}.{}", key, name))) sources.emplace(name, *text);
  if (const auto text = gguf.text(key + ".tool_use")) sources.emplace("tool_use", *text);
  return sources;
}

/// `chat_template` of a JSON file: a text, or a list of {name, template}.
void read_member(const fs::path& file, ChatSources& sources) {
  const json root = read_json(file, "[chat template]");
  if (!root.is_object()) fail(ErrorKind::io, "[chat template] {}: is not a JSON object", file.string());
  const json value = root.value("chat_template", json());
  if (value.is_string()) sources.emplace("default", value.get<std::string>());
  if (!value.is_array()) return;
  for (const json& entry : value) {
    const json name = entry.is_object() ? entry.value("name", json()) : json();
    const json text = entry.is_object() ? entry.value("template", json()) : json();
    if (!name.is_string() || !text.is_string())
      fail(ErrorKind::io, "[chat template] {}: an entry of chat_template has no name or no template",
           file.string());
    sources.emplace(name.get<std::string>(), text.get<std::string>());
  }
}

/// Newer files come first: they win over what tokenizer_config.json says.
ChatSources read_folder(const fs::path& folder) {
  ChatSources sources;
  if (fs::exists(folder / "chat_template.jinja"))
    sources.emplace("default", read_text_file(folder / "chat_template.jinja"));
  if (fs::is_directory(folder / "additional_chat_templates"))
    for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates"))
      if (entry.path().extension() == ".jinja")
        sources.emplace(entry.path().stem().string(), read_text_file(entry.path()));
  for (const char* name : {"chat_template.json", "tokenizer_config.json"})
    if (sources.empty() && fs::exists(folder / name)) read_member(folder / name, sources);
  return sources;
}

}  // namespace

ChatSources read_chat_sources(const fs::path& model) {
  ChatSources sources;
  if (fs::is_directory(model))
    sources = read_folder(model);
  else if (model.extension() == ".jinja")
    sources.emplace("default", read_text_file(model));
  else if (model.extension() == ".json")
    read_member(model, sources);
  else
    sources = read_gguf(model);
  if (sources.empty())
    fail(ErrorKind::io, "[chat template] {}: the model has no chat template; a built-in one may fit: chatml",
         model.string());
  return sources;
}

}  // namespace weft
