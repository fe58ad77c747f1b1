#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/safetensors.h"
#include "text/end_tokens.h"
#include "text/gguf_pretokenizers.h"
#include "text/normalize.h"
#include "text/pretokenize.h"

namespace weft {
namespace {

const std::string kSpace = "\u2581";

class Reader {
 public:
  explicit Reader(const Gguf& file) : file_(file), model_(file.text("tokenizer.ggml.model").value_or("")) {}

  TokenizerData read() {
    read_tokens();
    if (model_ == "llama")
      read_spm();
    else if (model_ == "gpt2" || model_ == "gemma4" || model_ == "whitespace")
      read_bpe();
    else if (model_ == "bert")
      read_wordpiece();
    else if (model_ == "t5")
      read_unigram();
    else if (model_ == "rwkv")
      read_rwkv();
    else if (model_.empty() || model_ == "no_vocab" || model_ == "none")
      fail(ErrorKind::unsupported, "[tokenizer] {}: the file has no vocabulary", file_.name());
    else
      fail(ErrorKind::unsupported, "[tokenizer] {}: the vocabulary '{}' is not known", file_.name(),
           one_line(model_));
    data_.ends = end_tokens(*data_.vocabulary);
    for (TokenId id : {data_.eos, special("eot", kNoToken), special("eom", kNoToken)})
      if (id != kNoToken) data_.ends.insert(id);
    return std::move(data_);
  }

 private:
  static std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

  /// "bos" is tokenizer.ggml.bos_token_id; an id that is no token leaves the default.
  TokenId special(std::string_view name, TokenId otherwise) const {
    const auto limit = static_cast<int64_t>(data_.vocabulary->size());
    const int64_t id = file_.integer(key(fmt::format("{}_token_id", name))).value_or(kNoToken);
    if (id >= 0 && id < limit) return static_cast<TokenId>(id);
    return otherwise < limit ? otherwise : kNoToken;
  }

  bool flag(std::string_view name, bool otherwise) const { return file_.flag(key(name)).value_or(otherwise); }

  static TokenKind kind_of(double type) {
    constexpr TokenKind kKinds[] = {TokenKind::normal,  TokenKind::normal,       TokenKind::unknown,
                                    TokenKind::control, TokenKind::user_defined, TokenKind::unused,
                                    TokenKind::byte};
    return type >= 0 && type < static_cast<double>(std::size(kKinds)) ? kKinds[static_cast<size_t>(type)]
                                                                      : TokenKind::normal;
  }

  void read_tokens() {
    const std::vector<std::string_view> texts = file_.texts(key("tokens"));
    const std::vector<double> scores = file_.numbers(key("scores")), types = file_.numbers(key("token_type"));
    const auto check = [&](std::string_view name, size_t size) {
      if (size != 0 && size < texts.size())
        fail(ErrorKind::io, "[tokenizer] {}: {} {} for {} tokens", file_.name(), size, name, texts.size());
    };
    check("scores", scores.size());
    check("token types", types.size());
    const bool html_end = std::ranges::find(texts, "<|tool_response>") != texts.end();
    std::vector<Token> tokens(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      tokens[i].text = texts[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string(texts[i]);
      if (!scores.empty()) tokens[i].score = scores[i];
      if (!std::isfinite(tokens[i].score))
        fail(ErrorKind::io, "[tokenizer] {}: the score of token {} is not finite", file_.name(), i);
      if (!types.empty()) tokens[i].kind = kind_of(types[i]);
      if (looks_like_control(texts[i]) && !(html_end && texts[i] == "</s>"))
        tokens[i].kind = TokenKind::control;
      if (tokens[i].kind == TokenKind::user_defined && model_ == "t5")
        tokens[i].score = 0;  // as good as it gets
    }
    data_.vocabulary = std::make_shared<const Vocabulary>(std::move(tokens));
    read_added();
  }

  /// Spaces that belong to a special token are not in the file; llama.cpp knows the models.
  void read_added() {
    std::string name(file_.text("general.name").value_or(""));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string_view architecture = file_.text("general.architecture").value_or("");
    const std::string_view pre = file_.text(key("pre")).value_or("");
    const bool phi3 = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
    const bool mask = pre == "jina-v2-de" || pre == "jina-v2-es" || pre == "jina-v2-code" ||
                      architecture == "nomic-bert-moe" || architecture == "jina-bert-v3";
    const bool modern_bert = name.find("modern-bert") != std::string::npos;
    std::vector<AddedToken> added;
    const Vocabulary& vocabulary = *data_.vocabulary;
    for (TokenId id = 0; vocabulary.has(id); ++id) {
      const auto& [text, score, kind, outside] = vocabulary[id];
      if (kind != TokenKind::user_defined && !vocabulary.is_control(id)) continue;
      const bool keeps_spaces = text == "<unk>" || text == "<s>" || text == "<|endoftext|>";
      added.push_back({.id = id,
                       .text = text,
                       .special = kind != TokenKind::user_defined,
                       .lstrip = (mask && text == "<mask>") || (modern_bert && text == "[MASK]"),
                       .rstrip = phi3 && !keeps_spaces});
    }
    data_.added = AddedTokens(std::move(added));
  }

  void read_ends(bool add_bos, bool add_eos) {
    if (flag("add_bos_token", add_bos) && data_.bos != kNoToken) data_.prefix = {data_.bos};
    if (flag("add_eos_token", add_eos) && data_.eos != kNoToken) data_.suffix = {data_.eos};
  }

  void read_spm() {
    data_.bos = special("bos", 1);
    data_.eos = special("eos", 2);
    read_ends(true, false);
    const bool space_prefix = flag("add_space_prefix", true);
    if (space_prefix) data_.normalizers.push_back(normalizers::prepend(" "));
    data_.normalizers.push_back(normalizers::replace(" ", kSpace));
    data_.keeps_bytes = true;
    data_.model = make_spm(data_.vocabulary, special("unknown", 0));
    read_spm_decoder(space_prefix);
  }

  void read_spm_decoder(bool drop_first_space) {
    data_.decoder = {decoders::byte_fallback(), decoders::replace(kSpace, " ")};
    if (drop_first_space) data_.decoder.push_back(decoders::strip_start(" ", 1, true));
  }

  void read_bpe() {
    const std::string pre(file_.text(key("pre")).value_or(""));
    const GgufPreTokenizer meaning = gguf_pretokenizer(model_ == "gpt2" ? pre : model_);
    data_.bos = special("bos", model_ == "gpt2" ? 11 : kNoToken);
    data_.eos = special("eos", model_ == "gpt2" ? 11 : kNoToken);
    read_ends(meaning.add_bos || model_ == "gemma4", false);
    if (meaning.escape_spaces) data_.normalizers.push_back(normalizers::replace(" ", kSpace));
    if (model_ == "whitespace") {
      if (flag("normalizer.lowercase", false)) data_.normalizers.push_back(normalizers::lowercase());
      data_.pre_tokenizers.push_back(pretokenizers::whitespace_split());
    }
    for (const std::string& pattern : meaning.patterns)
      data_.pre_tokenizers.push_back(pretokenizers::split(Regex(pattern), pretokenizers::Behavior::isolated));
    if (meaning.byte_level) data_.pre_tokenizers.push_back(pretokenizers::byte_level(false, false));
    data_.model = make_bpe(data_.vocabulary, {.merges = merges(),
                                              .byte_fallback = !meaning.byte_level,
                                              .ignore_merges = meaning.ignore_merges,
                                              .newlines_whole = meaning.newlines_whole});
    if (meaning.byte_level)
      data_.decoder = {decoders::byte_level()};
    else
      read_spm_decoder(false);
  }

  /// "left right": a space may begin the left one.
  std::vector<std::pair<std::string, std::string>> merges() const {
    std::vector<std::pair<std::string, std::string>> result;
    for (std::string_view text : file_.texts(key("merges"))) {
      const size_t space = text.find(' ', 1);
      if (space == text.npos)
        fail(ErrorKind::io, "[tokenizer] {}: '{}' is no merge", file_.name(), one_line(text));
      result.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return result;
  }

  void read_wordpiece() {
    data_.bos = special("cls", special("bos", 101));
    data_.eos = special("eos", kNoToken);
    const TokenId separator = special("seperator", 102);  // spelt so in the format
    if (data_.bos != kNoToken) data_.prefix = {data_.bos};
    if (separator != kNoToken) data_.suffix = {separator};
    normalizers::BertOptions options;
    options.lowercase = flag("normalizer.lowercase", true);
    options.strip_accents = flag("normalizer.strip_accents", options.lowercase);
    data_.normalizers.push_back(normalizers::bert_gguf(options));
    data_.pre_tokenizers.push_back(pretokenizers::bert());
    data_.model = make_wordpiece(data_.vocabulary,
                                 {.begin = kSpace, .continuation = "", .unknown = special("unknown", 100)});
    read_spm_decoder(true);
  }

  void read_unigram() {
    data_.bos = special("bos", kNoToken);
    data_.eos = special("eos", 1);
    read_ends(false, true);
    normalizers::SentencePieceOptions options;
    if (file_.contains(key("precompiled_charsmap")))
      options.map.emplace(file_.bytes(key("precompiled_charsmap")));
    options.space_prefix = flag("add_space_prefix", false);
    options.merge_spaces = flag("remove_extra_whitespaces", false);
    double lowest = std::numeric_limits<double>::max();
    const Vocabulary& vocabulary = *data_.vocabulary;
    for (TokenId id = 0; vocabulary.has(id); ++id) {
      if (vocabulary[id].kind == TokenKind::user_defined) options.kept.push_back(vocabulary[id].text);
      if (vocabulary[id].kind == TokenKind::normal) lowest = std::min(lowest, vocabulary[id].score);
    }
    read_spm_decoder(options.space_prefix);
    data_.normalizers.push_back(normalizers::sentencepiece(std::move(options)));
    constexpr double kPenalty = 10;  // SentencePiece's, below the worst token
    data_.model = make_unigram(data_.vocabulary,
                               {.unknown = special("unknown", 2), .unknown_score = lowest - kPenalty});
  }

  void read_rwkv() {
    data_.bos = special("bos", kNoToken);
    data_.eos = special("eos", kNoToken);
    data_.keeps_bytes = true;
    data_.model = make_rwkv(data_.vocabulary, special("unknown", kNoToken));
    data_.decoder = {decoders::rwkv()};
  }

  const Gguf& file_;
  std::string model_;
  TokenizerData data_;
};

}  // namespace

TokenizerData read_gguf_tokenizer(const Gguf& file) {
  return Reader(file).read();
}

}  // namespace weft
