#include <algorithm>

#include "text/model.h"
#include "text/utf8.h"

namespace weft {
namespace {

std::vector<std::pair<std::string_view, TokenId>> plain_tokens(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (TokenId id = 0; vocabulary.has(id); ++id)
    if (vocabulary.is_plain(id)) entries.emplace_back(vocabulary[id].text, id);
  return entries;
}

class WordPiece final : public TokenModel {
 public:
  WordPiece(const SharedVocabulary& vocabulary, const WordPieceOptions& options)
      : trie_(plain_tokens(*vocabulary)),
        begin_(trie_.walk(options.begin)),
        continuation_(trie_.walk(options.continuation)),
        options_(options) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    for (size_t i = 0; i < pieces.spans.size(); ++i)
      if (const std::string_view word = pieces[i]; !word.empty()) encode_word(word, out);
  }

 private:
  void encode_word(std::string_view word, std::vector<TokenId>& out) const {
    const size_t before = out.size();
    const auto characters = static_cast<size_t>(
        std::ranges::count_if(word, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    bool covered = options_.max_characters == 0 || characters <= options_.max_characters;
    for (size_t pos = 0; covered && pos < word.size();) {
      const Trie::Found found = trie_.longest(word.substr(pos), pos == 0 ? begin_ : continuation_);
      covered = found.length > 0;
      if (covered) out.push_back(found.token);
      pos += found.length;
    }
    if (covered) return;
    out.resize(before);
    if (options_.unknown != kNoToken) out.push_back(options_.unknown);
  }

  Trie trie_;
  Trie::State begin_, continuation_;
  WordPieceOptions options_;
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(SharedVocabulary vocabulary, TokenId unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    for (size_t i = 0; i < pieces.spans.size(); ++i) {
      const TokenId id = vocabulary_->find_plain(pieces[i]);
      if (id != kNoToken || unknown_ != kNoToken) out.push_back(id != kNoToken ? id : unknown_);
    }
  }

 private:
  SharedVocabulary vocabulary_;
  TokenId unknown_;
};

class Rwkv final : public TokenModel {
 public:
  Rwkv(const SharedVocabulary& vocabulary, TokenId unknown) : unknown_(unknown) {
    std::vector<std::string> texts;
    std::vector<std::pair<std::string_view, TokenId>> entries = plain_tokens(*vocabulary);
    texts.reserve(entries.size());  // the entries refer to them
    for (auto& [text, id] : entries) text = texts.emplace_back(unescape_rwkv(text));
    trie_ = Trie(std::move(entries));
  }

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    for (size_t i = 0; i < pieces.spans.size(); ++i)
      for (std::string_view rest = pieces[i]; !rest.empty();) {
        const Trie::Found found = trie_.longest(rest);
        const TokenId id = found.length > 0 ? found.token : unknown_;
        if (id != kNoToken) out.push_back(id);
        rest.remove_prefix(std::max<size_t>(found.length, 1));
      }
  }

 private:
  Trie trie_;
  TokenId unknown_;
};

}  // namespace

std::string unescape_rwkv(std::string_view text) {
  std::string bytes;
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      bytes.push_back(text[i]);
      continue;
    }
    const char kind = text[++i];
    if (kind == 'x' && i + 2 < text.size()) {
      bytes.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      bytes.push_back(kind == 't' ? '\t' : kind == 'n' ? '\n' : kind == 'r' ? '\r' : kind);
    }
  }
  return bytes;
}

std::unique_ptr<TokenModel> make_wordpiece(const SharedVocabulary& vocabulary,
                                           const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

std::unique_ptr<TokenModel> make_wordlevel(SharedVocabulary vocabulary, TokenId unknown) {
  return std::make_unique<WordLevel>(std::move(vocabulary), unknown);
}

std::unique_ptr<TokenModel> make_rwkv(const SharedVocabulary& vocabulary, TokenId unknown) {
  return std::make_unique<Rwkv>(vocabulary, unknown);
}

}  // namespace weft
