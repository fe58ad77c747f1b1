#pragma once

#include <bitset>
#include <string_view>

#include "text/vocabulary.h"

namespace weft {

/// Where a piece can be cut without changing how it merges: before a "▁" that no token has behind the byte
/// that is before it. Texts without a pre-tokenizer are one piece; a heap per word instead of one per text
/// takes a quarter of the time, and memory for a word.
class WordCuts {
 public:
  explicit WordCuts(const Vocabulary& vocabulary) {
    for (TokenId id = 0; vocabulary.has(id); ++id) {
      const std::string_view text = vocabulary[id].text;
      for (size_t at = text.find(kSpace, 1); at != text.npos; at = text.find(kSpace, at + 1))
        joins_.set(byte(text[at - 1]));
    }
  }

  /// The first cut behind the begin of `piece`; its end when there is none.
  size_t first(std::string_view piece) const {
    size_t at = piece.find(kSpace, 1);
    while (at != piece.npos && joins_[byte(piece[at - 1])]) at = piece.find(kSpace, at + 1);
    return std::min(at, piece.size());
  }

 private:
  static constexpr std::string_view kSpace = "\u2581";
  static unsigned char byte(char c) { return static_cast<unsigned char>(c); }

  std::bitset<256> joins_;
};

}  // namespace weft
