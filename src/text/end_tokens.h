#pragma once

#include <set>

#include "text/vocabulary.h"

namespace weft {

/// Texts that are control tokens whatever a file says: ends of turns, marks of infilling.
bool looks_like_control(std::string_view text);

/// Tokens that end a generation, found by their texts.
std::set<TokenId> end_tokens(const Vocabulary& vocabulary);

}  // namespace weft
