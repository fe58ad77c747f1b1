#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "io/safetensors.h"
#include "text/chat_sources.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/parser.h"
#include "text/utf8.h"
#include "weft/chat.h"

namespace weft {
namespace {

constexpr size_t kMaxSource = 4 << 20;

[[noreturn]] void fail_at(ErrorKind kind, int line, std::string_view what) {
  fail(kind, "[chat template] line {}: {}", line, one_line(what));
}

jinja::Body parse_source(std::string_view source) {
  if (source.size() > kMaxSource) fail(ErrorKind::io, "[chat template] {} bytes are too many", source.size());
  for (size_t at = 0; at < source.size();) {
    const size_t length = utf8::valid_length(source, at);
    if (length == 0)
      fail_at(ErrorKind::io, 1 + static_cast<int>(std::ranges::count(source.substr(0, at), '\n')),
              "is not UTF-8");
    at += length;
  }
  try {
    return jinja::parse(source);
  } catch (const jinja::Failure& failure) {
    fail_at(ErrorKind::io, failure.line(), failure.what());
  }
}

std::tm time_of(const std::string& now) {
  std::tm time{};
  if (now.empty()) {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &time);
    return time;
  }
  const char* end = strptime(now.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (!end || *end != '\0')
    fail(ErrorKind::invalid, "[chat template] '{}' is no time like 2026-01-15T09:30:00", one_line(now));
  return time;
}

/// Templates put roles between the signs of a control token: '<|' + role + '|>'. The names of roles are not a
/// user's words, so these few are as good as the template's own.
bool is_known_role(std::string_view role) {
  constexpr std::string_view kRoles[] = {
      "system",      "user",        "assistant", "tool",  "developer", "function",     "ipython",
      "observation", "environment", "model",     "human", "bot",       "gpt",          "python",
      "context",     "document",    "documents", "tools", "tool_call", "tool_response"};
  return std::ranges::find(kRoles, role) != std::end(kRoles);
}

jinja::Value with_trusted_roles(jinja::Budget& budget, const jinja::Value& messages) {
  if (!messages.items()) return messages;
  jinja::List result;
  for (const jinja::Value& message : *messages.items()) {
    const jinja::Value* role = message.dict() ? message.dict()->find("role") : nullptr;
    if (!role || !role->text() || !is_known_role(role->text()->bytes())) {
      result.push_back(message);
      continue;
    }
    jinja::Dict copy = *message.dict();
    copy.set(budget, jinja::Value::words("role"), jinja::Value::words(role->text()->bytes()));
    result.emplace_back(std::move(copy));
  }
  return result;
}

void set_variables(jinja::Interpreter& interpreter, const ChatInput& input) {
  jinja::Budget& budget = interpreter.budget();
  interpreter.set("bos_token", jinja::Value::words(utf8::valid(input.bos_token)));
  interpreter.set("eos_token", jinja::Value::words(utf8::valid(input.eos_token)));
  interpreter.set("add_generation_prompt", input.add_generation_prompt);
  interpreter.set("messages", with_trusted_roles(budget, jinja::parse_json(budget, input.messages)));
  interpreter.set("tools", jinja::parse_json(budget, input.tools));
  const jinja::Value variables = jinja::parse_json(budget, input.variables);
  if (!variables.dict()) jinja::wrong("the variables are not a JSON object");
  for (const auto& [name, value] : variables.dict()->pairs()) interpreter.set(name.text()->bytes(), value);
}

}  // namespace

struct ChatTemplate::Data {
  std::map<std::string, jinja::Body, std::less<>> variants;
};

ChatTemplate ChatTemplate::open(const std::filesystem::path& model) {
  if (const std::string_view source = built_in_chat_template(model.string()); !source.empty())
    return ChatTemplate(source);
  auto data = std::make_shared<Data>();
  for (const auto& [name, source] : read_chat_sources(model))
    data->variants.emplace(name, parse_source(source));
  return ChatTemplate(std::move(data));
}

std::vector<std::string_view> ChatTemplate::built_in_names() {
  return built_in_chat_names();
}

ChatTemplate::ChatTemplate(std::string_view source) {
  auto data = std::make_shared<Data>();
  data->variants.emplace("default", parse_source(source));
  data_ = std::move(data);
}

std::vector<std::string> ChatTemplate::variants() const {
  std::vector<std::string> names;
  for (const auto& [name, body] : data_->variants) names.push_back(name);
  return names;
}

std::vector<ChatPart> ChatTemplate::render(const ChatInput& input) const {
  std::string name = input.variant;
  if (name.empty())
    name = input.tools != "null" && data_->variants.contains("tool_use") ? "tool_use" : "default";
  const auto variant = data_->variants.find(name);
  if (variant == data_->variants.end())
    fail(ErrorKind::invalid, "[chat template] there is no template '{}', but {}", one_line(name),
         one_line(fmt::format("{}", fmt::join(variants(), ", "))));
  jinja::Interpreter interpreter(time_of(input.now));
  jinja::Text text;
  try {
    set_variables(interpreter, input);
    interpreter.run(variant->second, text);
  } catch (const jinja::Failure& failure) {
    if (interpreter.line() == 0) fail(ErrorKind::invalid, "[chat template] {}", one_line(failure.what()));
    fail_at(ErrorKind::invalid, interpreter.line(), failure.what());
  }
  std::vector<ChatPart> parts;
  text.each_run(
      [&](std::string_view bytes, bool trusted) { parts.push_back({std::string(bytes), trusted}); });
  return parts;
}

std::string ChatTemplate::render_text(const ChatInput& input) const {
  std::string text;
  for (const ChatPart& part : render(input)) text += part.text;
  return text;
}

}  // namespace weft
