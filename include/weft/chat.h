#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// What a chat template is given. Messages, tools and variables are JSON texts and not trusted, also when
/// they come from a program: what is in them never becomes a control token.
struct ChatInput {
  std::string messages;          ///< [{"role": "user", "content": "Hello"}, ...]
  std::string tools = "null";    ///< [{"type": "function", "function": {"name": ...}}, ...]
  std::string variables = "{}";  ///< whatever else a template knows: {"enable_thinking": false}
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  std::string now;      ///< "2026-01-15T09:30:00", for templates that tell the date; empty: the clock
  std::string variant;  ///< one of several templates; empty: "tool_use" where there are tools, else "default"
};

/// Made for `Tokenizer::encode`, which takes the same as views.
struct ChatPart {
  std::string text;
  bool trusted = false;  ///< the template's own words, in which control tokens are meant
};

/// A conversation as the text that a model was trained on. A value: copies share the parsed template. All
/// calls may come from several threads. Templates are Jinja, as Hugging Face's transformers runs it; they
/// cannot reach anything but their input, and what they may compute is limited.
class ChatTemplate {
 public:
  /// A GGUF file, a Hugging Face folder, a .jinja file, or a built-in name: "chatml". Throws ErrorKind::io
  /// for one that cannot be read or has no template.
  static ChatTemplate open(const std::filesystem::path& model);
  static std::vector<std::string_view> built_in_names();

  explicit ChatTemplate(std::string_view source);

  /// Throws ErrorKind::invalid, `[chat template] line 7: ...`, where the template refuses the conversation.
  std::vector<ChatPart> render(const ChatInput& input) const;
  std::string render_text(const ChatInput& input) const;  ///< the parts as one text

  std::vector<std::string> variants() const;

 private:
  struct Data;
  explicit ChatTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

}  // namespace weft
