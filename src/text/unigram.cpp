#include <algorithm>
#include <limits>
#include <ranges>

#include "text/model.h"
#include "text/utf8.h"

namespace weft {
namespace {

class Unigram final : public TokenModel {
 public:
  Unigram(SharedVocabulary vocabulary, const UnigramOptions& options)
      : vocabulary_(std::move(vocabulary)), options_(options) {
    std::vector<std::pair<std::string_view, TokenId>> entries;
    for (TokenId id = 0; vocabulary_->has(id); ++id)
      if (vocabulary_->is_plain(id) && (*vocabulary_)[id].kind != TokenKind::byte)
        entries.emplace_back((*vocabulary_)[id].text, id);
    trie_ = Trie(std::move(entries));
  }

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    std::vector<Best> best;
    for (size_t i = 0; i < pieces.spans.size(); ++i)
      if (const std::string_view piece = pieces[i]; !piece.empty()) encode_piece(piece, best, out);
  }

 private:
  /// The best way to come to a place of the piece.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    size_t from = 0;
    TokenId token = kNoToken;  // kNoToken: a character that is no token
  };

  void encode_piece(std::string_view piece, std::vector<Best>& best, std::vector<TokenId>& out) const {
    best.assign(piece.size() + 1, {});
    best[0].score = 0;
    for (size_t begin = 0; begin < piece.size();) {
      const size_t next = utf8::next_position(piece, begin);
      const auto offer = [&](size_t end, double score, TokenId token) {
        if (best[begin].score + score > best[end].score)
          best[end] = {best[begin].score + score, begin, token};
      };
      bool character_found = false;
      Trie::State state = Trie::kRoot;
      for (size_t end = begin; end < piece.size();) {
        state = trie_.step(state, piece[end++]);
        if (state == Trie::kDead) break;
        const TokenId token = trie_.token(state);
        if (token == kNoToken) continue;
        character_found |= end == next;
        offer(end, (*vocabulary_)[token].score, token);
      }
      if (!character_found) offer(next, options_.unknown_score, kNoToken);
      begin = next;
    }
    append_path(piece, best, out);
  }

  /// Unknown characters that follow each other are one unknown token, or bytes.
  void append_path(std::string_view piece, const std::vector<Best>& best, std::vector<TokenId>& out) const {
    std::vector<std::pair<size_t, size_t>> path;  // begin, end
    for (size_t end = piece.size(); end > 0; end = best[end].from) {
      const size_t begin = best[end].from;
      const bool unknown = best[end].token == kNoToken;
      if (unknown && !path.empty() && best[path.back().second].token == kNoToken)
        path.back().first = begin;
      else
        path.emplace_back(begin, end);
    }
    for (const auto& [begin, end] : path | std::views::reverse) {
      const TokenId token = best[end].token;
      if (token != kNoToken)
        out.push_back(token);
      else if (!options_.byte_fallback || !vocabulary_->append_bytes(piece.substr(begin, end - begin), out))
        if (options_.unknown != kNoToken) out.push_back(options_.unknown);
    }
  }

  SharedVocabulary vocabulary_;
  UnigramOptions options_;
  Trie trie_;
};

}  // namespace

std::unique_ptr<TokenModel> make_unigram(SharedVocabulary vocabulary, const UnigramOptions& options) {
  return std::make_unique<Unigram>(std::move(vocabulary), options);
}

}  // namespace weft
