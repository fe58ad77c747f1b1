#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text.h"

namespace weft {

enum class TokenKind : uint8_t {
  normal,
  control,       ///< never comes out of a user's text
  user_defined,  ///< found in the text before anything else is done with it
  unknown,
  byte,  ///< "<0x0A>"
  unused,
};

struct Token {
  std::string text;
  double score = 0;
  TokenKind kind = TokenKind::normal;
  bool added = false;  ///< not the model's own: found in the text, never made by the model
};

/// The tokens by id and by text. Of equal texts the last one is found. An open hash table: loading a
/// vocabulary is mostly looking up the parts of its merges, and this halves it against std::unordered_map.
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<Token> tokens);

  size_t size() const { return tokens_.size(); }
  const Token& operator[](TokenId id) const { return tokens_[static_cast<size_t>(id)]; }
  bool has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < tokens_.size(); }

  TokenId find(std::string_view text) const;
  bool is_control(TokenId id) const;  ///< or the unknown one
  /// What a model may make of text: no control token, none that was added.
  TokenId find_plain(std::string_view text) const;
  bool is_plain(TokenId id) const { return !is_control(id) && !(*this)[id].added; }
  /// Appends the tokens of the bytes ("<0x0A>"); false, and nothing, when one of them is not there.
  bool append_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = kNoToken;
  };
  /// Where `text` is, or could be.
  size_t slot_of(std::string_view text, uint32_t hash) const;

  std::vector<Token> tokens_;
  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::array<TokenId, 256> bytes_;
};

/// The byte that a token like "<0x0A>" stands for; -1 for other texts.
int byte_of_token(std::string_view text);

}  // namespace weft
