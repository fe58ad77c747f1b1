#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "weft/chat.h"
#include "weft/llm.h"

namespace weft::cli {

/// Messages between a user and a model, in the model's own form.
class Conversation {
 public:
  Conversation(ChatTemplate form, const Tokenizer& tokenizer)
      : form_(std::move(form)), tokenizer_(tokenizer) {}

  void say(const std::string& role, const std::string& content);
  void forget_last() { messages_.erase(messages_.size() - 1); }
  bool empty() const { return messages_.empty(); }
  /// Without messages but a system's, which is replaced where it is given, and taken away where it is empty.
  void reset();
  void set_system(const std::string& text);

  /// All messages as tokens, ready for the model's answer. Words of a user never become control tokens.
  std::vector<TokenId> prompt() const;

  /// One JSON object {"messages": ...}, as `weft template` reads it.
  void save(const std::filesystem::path& file) const;

 private:
  ChatTemplate form_;
  Tokenizer tokenizer_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace weft::cli
