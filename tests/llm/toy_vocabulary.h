#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm/grammar/token_trie.h"
#include "text/byte_level.h"
#include "text/tokenizer_data.h"

namespace weft::test {

/// A tokenizer that only decodes: all bytes, these texts, a control token "<s>" and at last the end "</s>".
inline Tokenizer toy_tokenizer(const std::vector<std::string>& texts) {
  std::vector<Token> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back({.text = to_byte_level(std::string(1, static_cast<char>(byte)))});
  for (const std::string& text : texts) tokens.push_back({.text = to_byte_level(text)});
  tokens.push_back({.text = "<s>", .kind = TokenKind::control});
  tokens.push_back({.text = "</s>", .kind = TokenKind::control});
  TokenizerData data;
  data.ends = {static_cast<TokenId>(tokens.size() - 1)};
  data.vocabulary = std::make_shared<const Vocabulary>(std::move(tokens));
  data.decoder = {decoders::byte_level()};
  return Tokenizer(std::move(data));
}

}  // namespace weft::test
