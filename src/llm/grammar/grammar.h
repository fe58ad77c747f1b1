#pragma once

#include <memory>
#include <string_view>

#include "llm/grammar/token_trie.h"

namespace weft {

struct GrammarProgram;
class GrammarMatcher;

/// A set of tokens: one bit for each id.
class TokenMask {
 public:
  explicit TokenMask(size_t size) : bits_((size + 63) / 64) {}
  void set(TokenId id) { bits_[static_cast<size_t>(id) / 64] |= uint64_t{1} << id % 64; }
  bool operator[](TokenId id) const {
    const size_t word = static_cast<size_t>(id) / 64;
    return word < bits_.size() && (bits_[word] >> id % 64 & 1);
  }
  const std::vector<uint64_t>& bits() const { return bits_; }

 private:
  std::vector<uint64_t> bits_;
};

/// A grammar in llama.cpp's notation, GBNF. Copies share what was compiled.
class Grammar {
 public:
  /// Throws ErrorKind::invalid, `[grammar] line 3: ...`.
  explicit Grammar(std::string_view gbnf);

 private:
  friend class GrammarState;
  std::shared_ptr<const GrammarProgram> program_;
};

/// A text that follows a grammar, as far as it has come. A value; copies share what they learn about the
/// grammar and may be used from several threads.
///
/// A hostile grammar cannot take more than a few seconds and 200 MB for a call: calls then throw
/// ErrorKind::invalid.
class GrammarState {
 public:
  GrammarState(const Grammar& grammar, std::shared_ptr<const TokenTrie> tokens);

  /// The tokens that may come next. Tokens that end a generation are among them where the text may end.
  std::shared_ptr<const TokenMask> allowed();
  /// Whether this one may: cheaper than the whole set.
  bool allows(TokenId id);
  /// Goes on with a token. Throws ErrorKind::invalid for one that is not allowed.
  void accept(TokenId id);

  bool may_end() const;
  bool finished() const;  ///< nothing but the end may come

 private:
  std::shared_ptr<GrammarMatcher> matcher_;
  uint32_t state_ = 0;
  bool ended_ = false;  // a token that ends the generation was accepted
};

}  // namespace weft
