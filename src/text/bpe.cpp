#include <algorithm>
#include <bit>

#include "text/merge.h"
#include "text/model.h"
#include "text/utf8.h"
#include "text/word_cuts.h"

namespace weft {
namespace {

/// What two tokens merge to. An open hash table, as the vocabulary's.
class Merges {
 public:
  explicit Merges(size_t count) : slots_(std::bit_ceil(count * 2 + 1)) {}

  /// The first merge of a pair counts.
  void add(TokenId left, TokenId right, size_t rank, TokenId whole) {
    Slot& slot = slots_[slot_of(left, right)];
    if (slot.whole == kNoToken) slot = {left, right, static_cast<uint32_t>(rank), whole};
  }

  std::optional<Merger::Merge> find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[slot_of(left, right)];
    return slot.whole == kNoToken ? std::nullopt
                                  : std::optional(Merger::Merge{static_cast<double>(slot.rank), slot.whole});
  }

 private:
  struct Slot {
    TokenId left = kNoToken, right = kNoToken;
    uint32_t rank = 0;
    TokenId whole = kNoToken;  // kNoToken: free
  };

  size_t slot_of(TokenId left, TokenId right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    size_t at = (key * 0x9E3779B97F4A7C15 >> 32) & (slots_.size() - 1);
    while (slots_[at].whole != kNoToken && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

class Bpe final : public TokenModel {
 public:
  Bpe(SharedVocabulary vocabulary, BpeOptions options)
      : vocabulary_(std::move(vocabulary)),
        options_(std::move(options)),
        merges_(options_.merges.size()),
        cuts_(*vocabulary_),
        cuts_words_(options_.unknown != kNoToken ||
                    vocabulary_->find_plain(options_.continuation + "\u2581") != kNoToken) {
    std::string whole;
    for (size_t rank = 0; rank < options_.merges.size(); ++rank) {
      const auto& [left, right] = options_.merges[rank];
      const TokenId a = vocabulary_->find(left), b = vocabulary_->find(right);
      whole = left;
      whole.append(right, right.starts_with(options_.continuation) ? options_.continuation.size() : 0);
      const TokenId merged = vocabulary_->find_plain(whole);
      if (a != kNoToken && b != kNoToken && merged != kNoToken) merges_.add(a, b, rank, merged);
    }
    options_.merges = {};
  }

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    Merger merger;
    for (size_t i = 0; i < pieces.spans.size(); ++i) encode_piece(pieces[i], merger, out);
  }

 private:
  void encode_piece(std::string_view piece, Merger& merger, std::vector<TokenId>& out) const {
    if (options_.ignore_merges || (options_.newlines_whole && piece.find_first_not_of('\n') == piece.npos))
      if (const TokenId id = vocabulary_->find_plain(piece); id != kNoToken) {
        out.push_back(id);
        return;
      }
    bool after_unknown = false;
    for (size_t pos = 0; pos < piece.size();) {
      const size_t end = cuts_words_ ? pos + cuts_.first(piece.substr(pos)) : piece.size();
      merge(piece, pos, end, merger);
      for (const Merger::Symbol& symbol : merger.symbols()) {
        if (symbol.size == 0) continue;
        const bool unknown = symbol.id == kNoToken;
        if (!(unknown && after_unknown && options_.fuse_unknown))
          out.push_back(unknown ? options_.unknown : symbol.id);
        after_unknown = unknown;
      }
      pos = end;
    }
  }

  void merge(std::string_view piece, size_t pos, size_t stop, Merger& merger) const {
    merger.clear();
    std::vector<TokenId> bytes;
    std::string spelt;
    while (pos < stop) {
      const size_t begin = pos;
      pos = utf8::next_position(piece, pos);
      spelt = begin == 0 ? "" : options_.continuation;
      spelt.append(piece, begin, pos - begin);
      if (pos == piece.size()) spelt += options_.word_end;
      const TokenId id = vocabulary_->find_plain(spelt);
      bytes.clear();
      if (id == kNoToken && options_.byte_fallback && vocabulary_->append_bytes(spelt, bytes))
        for (TokenId byte : bytes) merger.add(begin, 1, byte);
      else if (id != kNoToken || options_.unknown != kNoToken)
        merger.add(begin, pos - begin, id);
    }
    merger.run([&](const Merger::Symbol& left, const Merger::Symbol& right) -> std::optional<Merger::Merge> {
      if (left.id == kNoToken || right.id == kNoToken) return std::nullopt;
      return merges_.find(left.id, right.id);
    });
  }

  SharedVocabulary vocabulary_;
  BpeOptions options_;
  Merges merges_;
  WordCuts cuts_;
  bool cuts_words_;  // not where a "▁" vanishes: what is before and behind it may merge then
};

class Spm final : public TokenModel {
 public:
  Spm(SharedVocabulary vocabulary, TokenId unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown), cuts_(*vocabulary_) {
    for (size_t i = 0; i < vocabulary_->size(); ++i)
      longest_ = std::max(longest_, (*vocabulary_)[static_cast<TokenId>(i)].text.size());
  }

  void encode(const Pieces& pieces, std::vector<TokenId>& out) const override {
    Merger merger;
    for (size_t i = 0; i < pieces.spans.size(); ++i)
      for (std::string_view rest = pieces[i]; !rest.empty();) {
        const std::string_view word = rest.substr(0, cuts_.first(rest));
        encode_word(word, merger, out);
        rest.remove_prefix(word.size());
      }
  }

 private:
  void encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& out) const {
    merger.clear();
    for (size_t pos = 0; pos < word.size();) {
      const size_t size = std::max<size_t>(utf8::valid_length(word, pos), 1);
      merger.add(pos, size, vocabulary_->find_plain(word.substr(pos, size)));
      pos += size;
    }
    merger.run([&](const Merger::Symbol& left, const Merger::Symbol& right) -> std::optional<Merger::Merge> {
      const size_t size = left.size + right.size;
      const TokenId id = size > longest_ ? kNoToken : vocabulary_->find_plain(word.substr(left.begin, size));
      if (id == kNoToken) return std::nullopt;
      return Merger::Merge{-(*vocabulary_)[id].score, id};
    });
    for (const Merger::Symbol& symbol : merger.symbols()) {
      if (symbol.size == 0) continue;
      if (symbol.id != kNoToken)
        out.push_back(symbol.id);
      else if (!vocabulary_->append_bytes(word.substr(symbol.begin, symbol.size), out) &&
               unknown_ != kNoToken)
        out.push_back(unknown_);
    }
  }

  SharedVocabulary vocabulary_;
  TokenId unknown_;
  WordCuts cuts_;
  size_t longest_ = 0;
};

}  // namespace

std::unique_ptr<TokenModel> make_bpe(SharedVocabulary vocabulary, BpeOptions options) {
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(options));
}

std::unique_ptr<TokenModel> make_spm(SharedVocabulary vocabulary, TokenId unknown) {
  return std::make_unique<Spm>(std::move(vocabulary), unknown);
}

}  // namespace weft
