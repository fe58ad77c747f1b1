#include "text/tokenizer_json.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "text/end_tokens.h"
#include "text/normalize.h"
#include "text/pretokenize.h"

namespace weft {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;           // of sequences in sequences
constexpr int64_t kMaxId = 4'000'000;   // 15 times the largest vocabulary; an id is memory
constexpr size_t kMaxSteps = 256;       // of a kind; each goes over the whole text
constexpr size_t kMaxAround = 1000;     // tokens around a text
constexpr size_t kMaxReplacement = 64;  // bytes of what stands for a space
constexpr double kUnknownPenalty = 10;  // Unigram: below the worst token

std::optional<std::string> decode_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    const auto value =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  return bytes;
}

/// Members of JSON objects, with errors that name the file and the member.
class Members {
 public:
  explicit Members(std::string file) : file_(std::move(file)) {}

  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::io, "[tokenizer] {}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::unsupported, "[tokenizer] {}: {}", file_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  /// null when it is not there.
  static const json& member(const json& object, const char* key) {
    static const json nothing;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : nothing;
  }

  std::string text(const json& object, const char* key,
                   std::optional<std::string> otherwise = std::nullopt) const {
    const json& value = member(object, key);
    if (value.is_null() && otherwise) return *otherwise;
    if (!value.is_string()) wrong("{} is not a text", key);
    return value.get<std::string>();
  }

  bool flag(const json& object, const char* key, bool otherwise) const {
    const json& value = member(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) wrong("{} is not a bool", key);
    return value.get<bool>();
  }

  int64_t integer(const json& object, const char* key, int64_t otherwise) const {
    const json& value = member(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_number_integer()) wrong("{} is not an integer", key);
    return value.get<int64_t>();
  }

  const json& list(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_array()) wrong("{} is not a list", key);
    return value;
  }

 private:
  std::string file_;
};

class Reader : Members {
 public:
  Reader(const json& root, const json& config, const std::string& file)
      : Members(file), root_(root), config_(config) {}

  TokenizerData read() {
    if (!root_.is_object()) wrong("is not a JSON object");
    read_tokens();
    read_normalizer(member(root_, "normalizer"), 0);
    read_pre_tokenizer(member(root_, "pre_tokenizer"), 0);
    read_model();
    read_decoder(member(root_, "decoder"), 0);
    read_added();
    read_post_processor(member(root_, "post_processor"), 0);
    read_config();
    return std::move(data_);
  }

 private:
  const json& model() const { return member(root_, "model"); }

  std::string model_type() const {
    const json& vocabulary = member(model(), "vocab");
    const char* guess = !member(model(), "merges").is_null()                     ? "BPE"
                        : vocabulary.is_array()                                  ? "Unigram"
                        : member(model(), "continuing_subword_prefix").is_null() ? "WordLevel"
                                                                                 : "WordPiece";
    return text(model(), "type", guess);  // files of old have no type
  }

  TokenId id(const json& value) const {
    if (!value.is_number_integer()) wrong("a token's id is not an integer");
    const auto number = value.get<int64_t>();
    if (number < 0 || number >= kMaxId) wrong("token id {} is out of range", number);
    return static_cast<TokenId>(number);
  }

  void read_tokens() {
    std::vector<Token> tokens;
    const auto token = [&](TokenId at) -> Token& {
      if (static_cast<size_t>(at) >= tokens.size()) tokens.resize(static_cast<size_t>(at) + 1);
      return tokens[static_cast<size_t>(at)];
    };
    const json& vocabulary = member(model(), "vocab");
    if (vocabulary.is_object()) {
      for (const auto& [spelling, number] : vocabulary.items()) token(id(number)).text = spelling;
    } else if (vocabulary.is_array()) {
      for (const json& entry : vocabulary) {
        if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
          wrong("vocab is not a list of texts and scores");
        tokens.push_back({entry[0].get<std::string>(), entry[1].get<double>()});
      }
    } else {
      wrong("vocab is missing");
    }
    const json& added = member(root_, "added_tokens");
    if (!added.is_null() && !added.is_array()) wrong("added_tokens is not a list");
    for (const json& entry : added) {
      const TokenId number = id(member(entry, "id"));
      const bool known = static_cast<size_t>(number) < tokens.size() && !token(number).text.empty();
      Token& each = token(number);
      each.added = !known;
      each.text = text(entry, "content");
      each.kind = flag(entry, "special", false) ? TokenKind::control : TokenKind::user_defined;
    }
    data_.vocabulary = std::make_shared<const Vocabulary>(std::move(tokens));
  }

  void read_added() {
    std::vector<AddedToken> raw, normalized;
    for (const json& entry : member(root_, "added_tokens")) {
      AddedToken token{.id = id(member(entry, "id")),
                       .text = text(entry, "content"),
                       .special = flag(entry, "special", false),
                       .lstrip = flag(entry, "lstrip", false),
                       .rstrip = flag(entry, "rstrip", false),
                       .single_word = flag(entry, "single_word", false)};
      const bool after_normalizing = flag(entry, "normalized", !token.special);
      if (after_normalizing) token.text = weft::normalized(token.text, data_.normalizers);
      (after_normalizing ? normalized : raw).push_back(std::move(token));
    }
    data_.added = AddedTokens(std::move(raw));
    data_.added_normalized = AddedTokens(std::move(normalized));
  }

  // --- normalizers ---

  void check_depth(int depth) const {
    if (depth > kMaxDepth) wrong("nested deeper than {} levels", kMaxDepth);
  }

  template <typename Step>
  void add_step(std::vector<Step>& steps, Step step) const {
    if (steps.size() == kMaxSteps) wrong("has more than {} steps of a kind", kMaxSteps);
    steps.push_back(std::move(step));
  }

  void read_normalizer(const json& value, int depth) {
    check_depth(depth);
    if (value.is_null()) return;
    const std::string type = text(value, "type");
    if (type == "Sequence") {
      for (const json& part : list(value, "normalizers")) read_normalizer(part, depth + 1);
      return;
    }
    add_step(data_.normalizers, normalizer(value, type));
  }

  Normalizer normalizer(const json& value, const std::string& type) const {
    using namespace normalizers;
    if (type == "NFC") return unicode_form(unicode::Form::nfc);
    if (type == "NFD") return unicode_form(unicode::Form::nfd);
    if (type == "NFKC") return unicode_form(unicode::Form::nfkc);
    if (type == "NFKD") return unicode_form(unicode::Form::nfkd);
    if (type == "Lowercase") return lowercase();
    if (type == "StripAccents") return strip_accents();
    if (type == "Strip") return strip(flag(value, "strip_left", true), flag(value, "strip_right", true));
    if (type == "Prepend") return prepend(text(value, "prepend"));
    if (type == "Replace") return replacement(value);
    if (type == "ByteLevel") return byte_level();
    if (type == "Nmt") return nmt();
    if (type == "Precompiled") {
      const auto blob = decode_base64(text(value, "precompiled_charsmap"));
      if (!blob) wrong("precompiled_charsmap is not base64");
      return precompiled(CharsMap(*blob));
    }
    if (type == "BertNormalizer") {
      const bool lower = flag(value, "lowercase", true);
      return bert({.clean_text = flag(value, "clean_text", true),
                   .space_chinese = flag(value, "handle_chinese_chars", true),
                   .strip_accents = flag(value, "strip_accents", lower),
                   .lowercase = lower});
    }
    unsupported("the normalizer {} is not known", one_line(type));
  }

  /// Of a Replace: its pattern is a text or a regular expression.
  Normalizer replacement(const json& value) const {
    const json& pattern = member(value, "pattern");
    std::string content = text(value, "content");
    if (member(pattern, "String").is_string())
      return normalizers::replace(text(pattern, "String"), std::move(content));
    return normalizers::replace_matches(Regex(text(pattern, "Regex")), std::move(content));
  }

  // --- pre-tokenizers ---

  void read_pre_tokenizer(const json& value, int depth) {
    check_depth(depth);
    if (value.is_null()) return;
    const std::string type = text(value, "type");
    if (type == "Sequence") {
      for (const json& part : list(value, "pretokenizers")) read_pre_tokenizer(part, depth + 1);
      return;
    }
    add_step(data_.pre_tokenizers, pre_tokenizer(value, type));
  }

  PreTokenizer pre_tokenizer(const json& value, const std::string& type) const {
    using namespace pretokenizers;
    if (type == "ByteLevel")
      return byte_level(flag(value, "add_prefix_space", true), flag(value, "use_regex", true));
    if (type == "Metaspace")
      return metaspace(space(value), prepend_scheme(value), flag(value, "split", true));
    if (type == "Whitespace") return whitespace();
    if (type == "WhitespaceSplit") return whitespace_split();
    if (type == "BertPreTokenizer") return pretokenizers::bert();
    if (type == "Punctuation") return punctuation(behavior(value));
    if (type == "Digits") return digits(flag(value, "individual_digits", false));
    if (type == "CharDelimiterSplit") return split_text(text(value, "delimiter"), Behavior::removed);
    if (type == "FixedLength")
      return fixed_length(static_cast<size_t>(std::max<int64_t>(1, integer(value, "length", 5))));
    if (type == "Split") {
      const json& pattern = member(value, "pattern");
      const bool invert = flag(value, "invert", false);
      if (member(pattern, "String").is_string())
        return split_text(text(pattern, "String"), behavior(value), invert);
      return split(Regex(text(pattern, "Regex")), behavior(value), invert);
    }
    unsupported("the pre-tokenizer {} is not known", one_line(type));
  }

  pretokenizers::Behavior behavior(const json& value) const {
    using pretokenizers::Behavior;
    const std::string name = text(value, "behavior", "Isolated");
    if (name == "Removed") return Behavior::removed;
    if (name == "Isolated") return Behavior::isolated;
    if (name == "Contiguous") return Behavior::contiguous;
    if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
    if (name == "MergedWithNext") return Behavior::merged_with_next;
    unsupported("the behavior {} is not known", one_line(name));
  }

  /// What stands for a space.
  std::string space(const json& value) const {
    std::string result = text(value, "replacement", "\u2581");
    if (result.size() > kMaxReplacement) wrong("replacement has {} bytes", result.size());
    return result;
  }

  /// Older files have a bool instead.
  pretokenizers::Prepend prepend_scheme(const json& value) const {
    using pretokenizers::Prepend;
    const std::string name =
        text(value, "prepend_scheme", flag(value, "add_prefix_space", true) ? "always" : "never");
    if (name == "always") return Prepend::always;
    if (name == "first") return Prepend::first;
    if (name == "never") return Prepend::never;
    unsupported("the prepend_scheme {} is not known", one_line(name));
  }

  // --- models ---

  TokenId unknown_token() const { return data_.vocabulary->find(text(model(), "unk_token", "")); }

  void read_model() {
    const std::string type = model_type();
    if (type == "BPE") {
      data_.model =
          make_bpe(data_.vocabulary, {.merges = merges(),
                                      .unknown = unknown_token(),
                                      .fuse_unknown = flag(model(), "fuse_unk", false),
                                      .byte_fallback = flag(model(), "byte_fallback", false),
                                      .ignore_merges = flag(model(), "ignore_merges", false),
                                      .continuation = text(model(), "continuing_subword_prefix", ""),
                                      .word_end = text(model(), "end_of_word_suffix", "")});
    } else if (type == "WordPiece") {
      const int64_t limit = integer(model(), "max_input_chars_per_word", 100);
      if (limit < 1) wrong("max_input_chars_per_word is {}", limit);
      data_.model =
          make_wordpiece(data_.vocabulary, {.begin = "",
                                            .continuation = text(model(), "continuing_subword_prefix", "##"),
                                            .unknown = unknown_token(),
                                            .max_characters = static_cast<size_t>(limit)});
    } else if (type == "Unigram") {
      if (!member(model(), "vocab").is_array()) wrong("vocab is not a list of texts and scores");
      double lowest = std::numeric_limits<double>::max();
      for (const json& entry : member(model(), "vocab")) lowest = std::min(lowest, entry[1].get<double>());
      const int64_t unknown = integer(model(), "unk_id", kNoToken);
      const bool exists = unknown >= 0 && unknown < static_cast<int64_t>(data_.vocabulary->size());
      data_.model =
          make_unigram(data_.vocabulary, {.unknown = exists ? static_cast<TokenId>(unknown) : kNoToken,
                                          .unknown_score = lowest - kUnknownPenalty,
                                          .byte_fallback = flag(model(), "byte_fallback", false)});
    } else if (type == "WordLevel") {
      data_.model = make_wordlevel(data_.vocabulary, unknown_token());
    } else {
      unsupported("the model {} is not known", one_line(type));
    }
  }

  /// "left right", or a list of the two.
  std::vector<std::pair<std::string, std::string>> merges() const {
    std::vector<std::pair<std::string, std::string>> result;
    for (const json& entry : list(model(), "merges")) {
      const bool pair = entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string();
      const std::string joined = entry.is_string() ? entry.get<std::string>() : "";
      const size_t space = joined.find(' ', 1);
      if (!pair && space == std::string::npos) wrong("merges has an entry that is no pair");
      if (pair)
        result.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
      else
        result.emplace_back(joined.substr(0, space), joined.substr(space + 1));
    }
    return result;
  }

  // --- what is put around a text ---

  void read_post_processor(const json& value, int depth) {
    check_depth(depth);
    if (value.is_null()) return;
    const std::string type = text(value, "type");
    if (type == "Sequence") {
      for (const json& part : list(value, "processors")) read_post_processor(part, depth + 1);
    } else if (type == "TemplateProcessing") {
      read_template(value);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      data_.prefix = {known(pair_id(value, "cls"))};
      data_.suffix = {known(pair_id(value, "sep"))};
    } else if (type != "ByteLevel") {
      unsupported("the post-processor {} is not known", one_line(type));
    }
  }

  TokenId pair_id(const json& value, const char* key) const {
    const json& pair = list(value, key);
    if (pair.size() != 2) wrong("{} is not a text and an id", key);
    return id(pair[1]);
  }

  TokenId known(TokenId token) const {
    if (!data_.vocabulary->has(token)) wrong("token {} is not in the vocabulary", token);
    return token;
  }

  void add_around(std::vector<TokenId>& list, TokenId token) const {
    if (list.size() == kMaxAround) wrong("puts more than {} tokens around a text", kMaxAround);
    list.push_back(token);
  }

  void read_template(const json& value) {
    bool before = true;
    for (const json& part : list(value, "single")) {
      const json& token = member(part, "SpecialToken");
      if (token.is_null()) {
        before = false;
        continue;
      }
      const json& description = member(member(value, "special_tokens"), text(token, "id").c_str());
      for (const json& number : list(description, "ids"))
        add_around(before ? data_.prefix : data_.suffix, known(id(number)));
    }
  }

  // --- decoders ---

  void read_decoder(const json& value, int depth) {
    check_depth(depth);
    if (value.is_null()) return;
    const std::string type = text(value, "type");
    if (type == "Sequence") {
      for (const json& part : list(value, "decoders")) read_decoder(part, depth + 1);
    } else if (type == "Fuse") {
      fused_ = true;
    } else {
      add_step(data_.decoder, decoder(value, type));
    }
  }

  DecodeStep decoder(const json& value, const std::string& type) const {
    using namespace decoders;
    if (type == "ByteLevel") return byte_level();
    if (type == "ByteFallback") return byte_fallback();
    if (type == "Metaspace")
      return metaspace(space(value), prepend_scheme(value) != pretokenizers::Prepend::never);
    if (type == "WordPiece") return wordpiece(text(value, "prefix", "##"), flag(value, "cleanup", true));
    if (type == "BPEDecoder") return replace(text(value, "suffix", "</w>"), " ");
    if (type == "Replace") return [change = replacement(value)](std::string& piece, bool) { change(piece); };
    if (type == "Strip")
      return strip_start(text(value, "content", " "),
                         static_cast<size_t>(std::max<int64_t>(0, integer(value, "start", 0))), fused_);
    unsupported("the decoder {} is not known", one_line(type));
  }

  // --- tokenizer_config.json ---

  /// A text, or an object with one.
  TokenId config_token(const char* key) const {
    const json& value = member(config_, key);
    const json& content = value.is_object() ? member(value, "content") : value;
    return content.is_string() ? data_.vocabulary->find(content.get<std::string>()) : kNoToken;
  }

  void read_config() {
    data_.bos = config_token("bos_token");
    data_.eos = config_token("eos_token");
    const auto around = [&](const char* key, TokenId token, std::vector<TokenId>& list, bool front) {
      const json& wanted = member(config_, key);
      if (!wanted.is_boolean() || token == kNoToken) return;
      const bool there = std::ranges::find(list, token) != list.end();
      if (wanted.get<bool>() && !there) list.insert(front ? list.begin() : list.end(), token);
      if (!wanted.get<bool>()) std::erase(list, token);
    };
    around("add_bos_token", data_.bos, data_.prefix, true);
    around("add_eos_token", data_.eos, data_.suffix, false);
    data_.ends = end_tokens(*data_.vocabulary);
    if (data_.eos != kNoToken) data_.ends.insert(data_.eos);
  }

  const json &root_, &config_;
  TokenizerData data_;
  bool fused_ = false;
};

json parse(std::string_view text, const std::string& name) {
  json value = parse_json(text, "[tokenizer] " + name);
  if (value.is_discarded()) fail(ErrorKind::io, "[tokenizer] {}: is not valid JSON", name);
  return value;
}

}  // namespace

TokenizerData parse_tokenizer_json(std::string_view text, std::string_view config, const std::string& name) {
  const json root = parse(text, name);
  const json settings = config.empty() ? json() : parse(config, name + " (tokenizer_config.json)");
  return Reader(root, settings, name).read();
}

TokenizerData read_tokenizer_json(const std::filesystem::path& file) {
  const std::filesystem::path beside = file.parent_path() / "tokenizer_config.json";
  const std::string config = std::filesystem::exists(beside) ? read_text_file(beside) : "";
  return parse_tokenizer_json(read_text_file(file), config, file.string());
}

}  // namespace weft
