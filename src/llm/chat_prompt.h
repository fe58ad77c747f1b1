#pragma once

#include <string>
#include <vector>

#include "weft/chat.h"
#include "weft/text.h"

namespace weft {

/// A conversation, a JSON list of messages, as tokens that are ready for the model's answer. Words of a user
/// never become control tokens.
std::vector<TokenId> chat_prompt(const ChatTemplate& form, const Tokenizer& tokenizer,
                                 const std::string& messages);

}  // namespace weft
