#pragma once

#include <set>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/pieces.h"

namespace weft {

/// All that a Tokenizer is, as a reader of files (gguf_tokenizer.h, tokenizer_json.h) fills it.
struct TokenizerData {
  SharedVocabulary vocabulary;
  AddedTokens added;             ///< found in the text as it comes
  AddedTokens added_normalized;  ///< found in the normalized text
  bool keeps_bytes = false;      ///< the model takes any bytes; otherwise it gets valid UTF-8
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::shared_ptr<const TokenModel> model;
  std::vector<TokenId> prefix, suffix;  ///< around a text when special tokens are asked for
  std::vector<DecodeStep> decoder;
  TokenId bos = kNoToken, eos = kNoToken;
  std::set<TokenId> ends;
};

}  // namespace weft
