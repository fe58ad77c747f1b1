#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

using TokenId = int32_t;
constexpr TokenId kNoToken = -1;

struct TokenizerData;  // what a reader of files fills: src/text/tokenizer_data.h

struct EncodeOptions {
  bool add_special = false;    ///< what the model wants around a text: BOS, EOS, [CLS] and [SEP]
  bool parse_special = false;  ///< control tokens spelt in the text become tokens; never for a user's text
};

struct DecodeOptions {
  bool special = false;    ///< control tokens are spelt; otherwise they are left out
  bool continues = false;  ///< the tokens go on from others: a space before the first word stays
};

/// A part of a text. Control tokens are only found inside one trusted part: a chat template's words, not a
/// user's.
struct TextPart {
  std::string_view text;
  bool trusted = false;
};

/// Text to token ids and back. A value: copies share one vocabulary. All calls may come from several threads.
class Tokenizer {
 public:
  /// A GGUF file, a tokenizer.json, or a folder with one. Throws ErrorKind::io for a damaged file and
  /// ErrorKind::unsupported for one that asks for more than weft has.
  static Tokenizer open(const std::filesystem::path& model);
  explicit Tokenizer(TokenizerData data);

  /// Any bytes: what is not UTF-8 becomes U+FFFD, or bytes where the vocabulary has them.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The parts as one text.
  std::vector<TokenId> encode(std::span<const TextPart> parts, bool add_special = false) const;

  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  size_t size() const;                          ///< ids are 0 .. size - 1
  std::string_view spelling(TokenId id) const;  ///< as the vocabulary spells it: "Ġthe", "▁the", "##ing"
  std::optional<TokenId> find(std::string_view spelling) const;
  /// What it adds to a text that others begin: maybe half a character, nothing for a control token.
  std::string bytes_of(TokenId id) const;
  bool is_control(TokenId id) const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool ends_generation(TokenId id) const;  ///< EOS, and the end of a turn where the model has such a token

 private:
  friend class Detokenizer;
  std::shared_ptr<const TokenizerData> data_;
};

/// The text of tokens that come one by one. Never half a character: what is not complete waits.
class Detokenizer {
 public:
  explicit Detokenizer(Tokenizer tokenizer, const DecodeOptions& options = {})
      : tokenizer_(std::move(tokenizer)), special_(options.special), first_(!options.continues) {}

  std::string push(TokenId id);
  std::string finish();  ///< what is left; its incomplete characters are U+FFFD

 private:
  Tokenizer tokenizer_;
  bool special_;
  bool first_;
  std::string pending_;
};

}  // namespace weft
