#include "llm/chat_prompt.h"

namespace weft {

std::vector<TokenId> chat_prompt(const ChatTemplate& form, const Tokenizer& tokenizer,
                                 const std::string& messages) {
  const auto spelt = [&](std::optional<TokenId> id) {
    return id ? std::string(tokenizer.spelling(*id)) : "";
  };
  const std::vector<ChatPart> parts = form.render(
      {.messages = messages, .bos_token = spelt(tokenizer.bos()), .eos_token = spelt(tokenizer.eos())});
  std::vector<TextPart> views;
  for (const ChatPart& part : parts) views.push_back({part.text, part.trusted});
  std::vector<TokenId> ids = tokenizer.encode(views);
  // Templates that do not spell BOS leave it to the tokenizer.
  const std::vector<TokenId> start = tokenizer.encode("", {.add_special = true});
  if (!start.empty() && start[0] == tokenizer.bos() && (ids.empty() || ids[0] != start[0]))
    ids.insert(ids.begin(), start[0]);
  return ids;
}

}  // namespace weft
