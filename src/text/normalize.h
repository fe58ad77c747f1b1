#pragma once

#include "text/charsmap.h"
#include "text/pieces.h"
#include "text/regex.h"
#include "text/unicode.h"

/// Normalizers: what happens to a text before it is cut. Valid UTF-8 in, valid UTF-8 out.
namespace weft::normalizers {

Normalizer unicode_form(unicode::Form form);
Normalizer lowercase();
Normalizer strip_accents();  ///< drops marks
Normalizer strip(bool left, bool right);
Normalizer prepend(std::string text);  ///< nothing before an empty text
Normalizer replace(std::string from, std::string to);
Normalizer replace_matches(Regex regex, std::string to);
Normalizer byte_level();
Normalizer nmt();  ///< SentencePiece's clean-up: no control characters, every space is U+0020

/// SentencePiece's map as the tokenizers library applies it: to clusters of below 6 bytes, else to
/// characters.
Normalizer precompiled(CharsMap map);

struct BertOptions {
  bool clean_text = true;
  bool space_chinese = true;  ///< spaces around every CJK character
  bool strip_accents = true;
  bool lowercase = true;
};
Normalizer bert(const BertOptions& options);
/// The same as llama.cpp does it: a letter is the first one of its decomposition, every mark is dropped.
Normalizer bert_gguf(const BertOptions& options);

struct SentencePieceOptions {
  std::optional<CharsMap> map;
  std::vector<std::string> kept;  ///< user-defined tokens: not changed
  bool space_prefix = true;       ///< before the text, or behind it with `suffix`
  bool suffix = false;
  bool merge_spaces = false;  ///< and none at the end
  bool escape_spaces = true;  ///< as "▁"
};
Normalizer sentencepiece(SentencePieceOptions options);

}  // namespace weft::normalizers
