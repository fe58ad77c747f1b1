#pragma once

#include "text/pieces.h"
#include "text/regex.h"

/// Pre-tokenizers: where a text is cut before its pieces become tokens.
namespace weft::pretokenizers {

/// What becomes of the matches that cut a text.
enum class Behavior { removed, isolated, contiguous, merged_with_previous, merged_with_next };

/// With `invert` the matches are what is between those of the pattern.
PreTokenizer split(Regex regex, Behavior behavior, bool invert = false);
PreTokenizer split_text(std::string text, Behavior behavior, bool invert = false);

PreTokenizer whitespace_split();  ///< words between spaces
PreTokenizer whitespace();        ///< the same, punctuation apart from words
PreTokenizer bert();              ///< the same, each punctuation character apart
PreTokenizer punctuation(Behavior behavior);
PreTokenizer digits(bool individual);
PreTokenizer fixed_length(size_t characters);

/// Spells bytes with GPT-2's alphabet, cutting with GPT-2's pattern first where `use_regex`.
PreTokenizer byte_level(bool add_prefix_space, bool use_regex);

enum class Prepend { never, first, always };
/// Spaces become `replacement`, one is put before the text, and each begins a piece where `split`.
PreTokenizer metaspace(std::string replacement, Prepend prepend, bool split);

inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace weft::pretokenizers
