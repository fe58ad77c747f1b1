#include "text/added_tokens.h"

#include <algorithm>

#include "text/code_set.h"
#include "text/utf8.h"

namespace weft {
namespace {

/// Normalizing can make texts equal. The trie finds the last of those: that must be the first token, control
/// tokens before others, as in the tokenizers library.
std::vector<std::pair<std::string_view, TokenId>> entries_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (bool special : {false, true})
    for (size_t i = tokens.size(); i-- > 0;)
      if (tokens[i].special == special) entries.emplace_back(tokens[i].text, static_cast<TokenId>(i));
  return entries;
}

bool is_word(char32_t code) {
  static const CodeSet words = CodeSet::words() | CodeSet::range(0x200C, 0x200D);
  return words.contains(code);
}

// Of the characters beside a token; the input may be any bytes, and what is no character is none of these.

template <typename Test>
size_t length_before(std::string_view text, size_t pos, const Test& test) {
  for (size_t length = 1; length <= std::min<size_t>(4, pos); ++length) {
    size_t begin = pos - length;
    if (utf8::valid_length(text, begin) == length) return test(utf8::next(text, begin)) ? length : 0;
  }
  return 0;
}

template <typename Test>
size_t length_at(std::string_view text, size_t pos, const Test& test) {
  const size_t length = pos < text.size() ? utf8::valid_length(text, pos) : 0;
  return length > 0 && test(utf8::next(text, pos)) ? length : 0;
}

}  // namespace

bool is_trusted(const TrustedRanges& trusted, size_t begin, size_t end) {
  const auto next =
      std::ranges::upper_bound(trusted, begin, {}, [](const auto& range) { return range.first; });
  return next != trusted.begin() && std::prev(next)->second >= end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), trie_(entries_of(tokens_)) {}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, const TrustedRanges& trusted) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Trie::Found found = trie_.longest(text.substr(pos));
    if (found.length == 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found.token)];
    size_t begin = pos, end = pos + found.length;
    pos = end;
    if (token.special && !is_trusted(trusted, begin, end)) continue;
    if (token.single_word && (length_before(text, begin, is_word) > 0 || length_at(text, end, is_word) > 0))
      continue;
    while (token.lstrip && begin > done && length_before(text, begin, unicode::is_space) > 0)
      begin -= length_before(text, begin, unicode::is_space);
    while (token.rstrip && length_at(text, end, unicode::is_space) > 0)
      end += length_at(text, end, unicode::is_space);
    if (token.lstrip) begin = std::max(begin, done);  // the token before may have taken the spaces
    if (begin > done) parts.push_back({text.substr(done, begin - done)});
    if (begin < end) parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace weft
