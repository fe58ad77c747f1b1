#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"

namespace weft {

/// A token that is found in the text before the model sees it.
struct AddedToken {
  TokenId id = kNoToken;
  std::string text;
  bool special = false;                 ///< only found in trusted text
  bool lstrip = false, rstrip = false;  ///< takes the spaces before, behind it
  bool single_word = false;             ///< not inside a word
};

/// Parts of a text in which control tokens may be found: begin and end, in their order.
using TrustedRanges = std::vector<std::pair<size_t, size_t>>;
bool is_trusted(const TrustedRanges& trusted, size_t begin, size_t end);

/// Finds added tokens: the leftmost, and of those the longest.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens = {});

  struct Part {
    std::string_view text;
    TokenId token = kNoToken;  ///< kNoToken: text between tokens, never empty
  };
  std::vector<Part> split(std::string_view text, const TrustedRanges& trusted) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie trie_;  // its values are indices of tokens_
};

}  // namespace weft
