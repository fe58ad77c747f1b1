#pragma once

#include <memory>

#include "text/pieces.h"
#include "text/trie.h"
#include "text/vocabulary.h"

namespace weft {

/// Turns pieces of text into tokens.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  virtual void encode(const Pieces& pieces, std::vector<TokenId>& out) const = 0;
};

using SharedVocabulary = std::shared_ptr<const Vocabulary>;

struct BpeOptions {
  std::vector<std::pair<std::string, std::string>> merges;  ///< best first
  TokenId unknown = kNoToken;
  bool fuse_unknown = false;
  bool byte_fallback = false;   ///< a character that is no token becomes its bytes
  bool ignore_merges = false;   ///< a piece that is a token is that token
  bool newlines_whole = false;  ///< the same, for pieces of newlines only
  std::string continuation,
      word_end;  ///< added to the text of characters that do not begin, or that end, a piece
};
std::unique_ptr<TokenModel> make_bpe(SharedVocabulary vocabulary, BpeOptions options);

/// SentencePiece's BPE: of two neighbours that together are a token those with the best score merge.
std::unique_ptr<TokenModel> make_spm(SharedVocabulary vocabulary, TokenId unknown);

struct WordPieceOptions {
  std::string begin, continuation;  ///< how tokens inside a word are spelt: "" and "##", or "▁" and ""
  TokenId unknown = kNoToken;
  size_t max_characters = 0;  ///< longer words are unknown; 0 = no limit
};
/// The longest token, then the longest that continues it, and so on; a word that cannot be covered is
/// unknown.
std::unique_ptr<TokenModel> make_wordpiece(const SharedVocabulary& vocabulary,
                                           const WordPieceOptions& options);

struct UnigramOptions {
  TokenId unknown = kNoToken;
  double unknown_score = 0;
  bool byte_fallback = false;
};
/// The split with the best sum of scores.
std::unique_ptr<TokenModel> make_unigram(SharedVocabulary vocabulary, const UnigramOptions& options);

/// A piece is a token or unknown.
std::unique_ptr<TokenModel> make_wordlevel(SharedVocabulary vocabulary, TokenId unknown);

/// RWKV: the longest token, again and again. The vocabulary spells bytes with escapes ("\n", "\xff").
std::unique_ptr<TokenModel> make_rwkv(const SharedVocabulary& vocabulary, TokenId unknown);
std::string unescape_rwkv(std::string_view text);

}  // namespace weft
