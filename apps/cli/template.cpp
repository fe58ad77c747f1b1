#include "template.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include "base/error.h"
#include "base/standard_error.h"
#include "input.h"
#include "io/json.h"
#include "pull/pull.h"
#include "weft/chat.h"
#include "weft/text.h"

namespace weft::cli {
namespace {

using json = nlohmann::ordered_json;  // templates show tools in the order in which they came

ChatInput parse_input(const std::string& text) {
  json object = parse_json<json>(text, "[template] the input");
  if (!object.is_object()) fail(ErrorKind::io, "[template] the input is not a JSON object");
  const auto take = [&](const char* name, const json& otherwise) {
    json value = object.value(name, otherwise);
    object.erase(name);
    if (value.type() != otherwise.type() && !otherwise.is_null())
      fail(ErrorKind::io, "[template] {} is not a {}", name, otherwise.type_name());
    return value;
  };
  ChatInput input;
  input.messages = take("messages", json::array()).dump();
  input.tools = take("tools", json()).dump();
  input.add_generation_prompt = take("add_generation_prompt", false).get<bool>();
  input.bos_token = take("bos_token", "").get<std::string>();
  input.eos_token = take("eos_token", "").get<std::string>();
  input.now = take("strftime_now", "").get<std::string>();
  input.variables = object.dump();
  return input;
}

/// BOS and EOS that the input does not name are the model's, where it has a vocabulary.
void name_tokens(const std::filesystem::path& model, ChatInput& input) {
  const bool has_vocabulary =
      model.extension() == ".gguf" || std::filesystem::exists(model / "tokenizer.json");
  if (!has_vocabulary || (!input.bos_token.empty() && !input.eos_token.empty())) return;
  const Tokenizer tokenizer = Tokenizer::open(model);
  const auto name = [&](std::string& token, std::optional<TokenId> id) {
    if (token.empty() && id) token = tokenizer.spelling(*id);
  };
  name(input.bos_token, tokenizer.bos());
  name(input.eos_token, tokenizer.eos());
}

}  // namespace

int render_template(const TemplateOptions& options) {
  const bool built_in = std::ranges::count(ChatTemplate::built_in_names(), options.model) != 0;
  std::filesystem::path model = options.model;
  if (!built_in) model = pull::resolve_model(options.model);
  const ChatTemplate chat = ChatTemplate::open(model);
  std::vector<ChatPart> parts;
  try {
    ChatInput input = parse_input(read_input("template"));
    name_tokens(model, input);
    parts = chat.render(input);
  } catch (const Error& error) {
    to_stderr("weft: {}\n", error.what());
    return 1;  // the call was right, the conversation was not
  }
  json list = json::array();
  for (const ChatPart& part : parts) {
    if (!options.json) fmt::print("{}", part.text);
    list.push_back({{"text", part.text}, {"trusted", part.trusted}});
  }
  if (options.json) fmt::print("{}\n", list.dump());
  return 0;
}

}  // namespace weft::cli
