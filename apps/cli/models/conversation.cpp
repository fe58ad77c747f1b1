#include "models/conversation.h"

#include "base/draft_file.h"
#include "llm/chat_prompt.h"
#include "weft/error.h"

namespace weft::cli {

using nlohmann::ordered_json;

namespace {

/// JSON has no place for bytes that are no UTF-8.
std::string text_of(const ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

bool has_system(const ordered_json& messages) {
  return !messages.empty() && messages[0]["role"] == "system";
}

}  // namespace

void Conversation::say(const std::string& role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

void Conversation::reset() {
  const bool keep = has_system(messages_);
  const ordered_json system = keep ? messages_[0] : ordered_json();
  messages_ = ordered_json::array();
  if (keep) messages_.push_back(system);
}

void Conversation::set_system(const std::string& text) {
  if (has_system(messages_)) messages_.erase(0);
  if (!text.empty()) messages_.insert(messages_.begin(), ordered_json{{"role", "system"}, {"content", text}});
}

std::vector<TokenId> Conversation::prompt() const {
  try {
    return chat_prompt(form_, tokenizer_, text_of(messages_));
  } catch (const Error& error) {  // the call was right, the template refuses the conversation
    throw Error(ErrorKind::unsupported, error.what());
  }
}

void Conversation::save(const std::filesystem::path& file) const {
  DraftFile draft(file);
  draft.write(text_of(ordered_json{{"messages", messages_}}, 2) + "\n");
  draft.finish();
}

}  // namespace weft::cli
