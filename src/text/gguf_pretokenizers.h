#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// What a name in tokenizer.ggml.pre means for a BPE vocabulary.
struct GgufPreTokenizer {
  std::vector<std::string> patterns;  ///< each cuts the pieces of the one before
  bool ignore_merges = false;
  bool add_bos = false;        ///< unless the file says otherwise
  bool byte_level = true;      ///< tokens are spelt with GPT-2's alphabet
  bool escape_spaces = false;  ///< a space is "▁"
  bool newlines_whole = false;
};

/// Throws ErrorKind::unsupported for a name that is not known.
GgufPreTokenizer gguf_pretokenizer(std::string_view name);
/// One name for each meaning.
std::vector<std::string_view> gguf_pretokenizer_names();

}  // namespace weft
