#include "quantize/hf_metadata.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "text/gguf_pretokenizers.h"
#include "text/pretokenize.h"
#include "text/tokenizer_json.h"

namespace weft::quantize {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Numbers that are f32 in GGUF files, also where they happen to be whole.
bool is_real(std::string_view key) {
  for (const std::string_view end : {"epsilon", "freq_base", "freq_base_swa", "softcapping", "scale",
                                     "factor", "beta_fast", "beta_slow", "multiplier", "clamp_kqv"})
    if (key.ends_with(end)) return true;
  return false;
}

void set_values(GgufWriter& writer, const llm::ModelFile& model) {
  const auto whole = [](double x) { return x == std::floor(x) && std::abs(x) < 2e9; };
  for (const auto& [name, value] : model.values) {
    const std::string key = model.architecture + "." + name;
    if (const double* number = std::get_if<double>(&value)) {
      if (!is_real(name) && whole(*number) && *number >= 0)
        writer.set(key, static_cast<uint32_t>(*number));
      else
        writer.set(key, static_cast<float>(*number));
    } else if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      if (std::ranges::all_of(*list, whole))
        writer.set(key, std::vector<int32_t>(list->begin(), list->end()));
      else
        writer.set(key, std::vector<float>(list->begin(), list->end()));
    } else if (const bool* flag = std::get_if<bool>(&value)) {
      writer.set(key, *flag);
    } else {
      writer.set(key, std::get<std::string>(value));
    }
  }
}

/// An empty object where there is no such file.
json read_object(const fs::path& file) {
  if (!fs::exists(file)) return json::object();
  json value = read_json(file, "[quantize]");
  if (!value.is_object()) fail(ErrorKind::io, "[quantize] {}: this is no JSON object", file.string());
  return value;
}

/// The kinds of tokens in GGUF files.
enum Kind : int32_t { normal = 1, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// Writes the keys tokenizer.ggml.* for a tokenizer.json.
class TokenizerKeys {
 public:
  TokenizerKeys(GgufWriter& writer, const fs::path& folder, size_t rows)
      : writer_(writer),
        file_(folder / "tokenizer.json"),
        all_(read_object(file_)),
        config_(read_object(folder / "tokenizer_config.json")),
        meaning_(read_tokenizer_json(file_)) {
    read_tokens(rows);
  }

  void set() {
    const std::string type = model().value("type", "");
    if (type == "BPE" && is_set(model(), "byte_fallback"))
      set_spm();
    else if (type == "BPE")
      set_bpe();
    else if (type == "WordPiece")
      set_wordpiece();
    else
      fail(ErrorKind::unsupported,
           "[quantize] {}: a tokenizer of type '{}' cannot be put into a GGUF file yet", file_.string(),
           one_line(type));
    writer_.set("tokenizer.ggml.tokens", tokens_);
    if (!scores_.empty()) writer_.set("tokenizer.ggml.scores", scores_);
    writer_.set("tokenizer.ggml.token_type", kinds_);
    set_special();
    set_template();
  }

 private:
  const json& model() const { return all_.at("model"); }  // the reader has checked the file

  /// As the reader takes it: null is as good as nothing.
  static bool is_set(const json& object, const char* key) { return object.value(key, json()) == true; }

  void put(size_t id, const std::string& text, Kind kind) {
    constexpr size_t kMost = 1 << 24;  // an id is an index
    if (id >= kMost) fail(ErrorKind::io, "[quantize] {}: token id {}", file_.string(), id);
    for (size_t i = tokens_.size(); i <= id; ++i) {
      tokens_.push_back(fmt::format("[PAD{}]", i));
      kinds_.push_back(Kind::unused);
    }
    tokens_[id] = text;
    kinds_[id] = kind;
    ids_[text] = id;
  }

  /// The embedding may have more rows than there are tokens.
  void read_tokens(size_t rows) {
    if (model().contains("vocab") && model()["vocab"].is_object())
      for (const auto& [text, id] : model()["vocab"].items()) put(id.get<size_t>(), text, Kind::normal);
    if (all_.contains("added_tokens"))
      for (const json& token : all_["added_tokens"])
        put(token.at("id").get<size_t>(), token.at("content").get<std::string>(),
            is_set(token, "special") ? Kind::control : Kind::user_defined);
    for (size_t i = tokens_.size(); i < rows; ++i) put(i, fmt::format("[PAD{}]", i), Kind::unused);
  }

  std::vector<std::pair<std::string, std::string>> merges() const {
    std::vector<std::pair<std::string, std::string>> result;
    for (const json& merge : model().at("merges")) {
      if (merge.is_array()) {
        result.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
      } else {
        const auto text = merge.get<std::string>();
        const size_t space = text.find(' ', 1);
        if (space == text.npos)
          fail(ErrorKind::io, "[quantize] {}: '{}' is no merge", file_.string(), one_line(text));
        result.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    }
    return result;
  }

  void set_bpe() {
    writer_.set("tokenizer.ggml.model", "gpt2");
    writer_.set("tokenizer.ggml.pre", find_pretokenizer());
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges()) lines.push_back(fmt::format("{} {}", left, right));
    writer_.set("tokenizer.ggml.merges", lines);
  }

  /// GGUF files name the rule by which texts are cut: the name is one whose rule cuts a difficult text as
  /// this tokenizer does. Where no rule does, ASCII has to be enough: llama.cpp's rules know no other
  /// capitals.
  std::string find_pretokenizer() const {
    constexpr std::string_view kAscii =
        "Hello, World's camelCase HTTPServer don't WE'LL I'm it'S  1 12 123 1234 12345 3.14 x=1;\n\n\t y\r\n "
        " \n z   "
        "!?... ($100%) a_b/c <tag> 'quoted' \"x\" foo(bar){baz[0]} //#\n# head\n* item\n   ";
    constexpr std::string_view kOthers =
        "— «naïve» Größe ÉCOLE 你好，世界 こんにちは カタカナ 한국어 สวัสดี مرحبا 🚀🚀 ²½Ⅷ ٣٤";
    const bool ignore_merges = is_set(model(), "ignore_merges");
    for (const std::string& text : {fmt::format("{}{}", kOthers, kAscii), std::string(kAscii)})
      for (const bool same_merges : {true, false})
        for (const std::string_view name : gguf_pretokenizer_names()) {
          const GgufPreTokenizer rule = gguf_pretokenizer(name);
          if (!rule.byte_level || (rule.ignore_merges == ignore_merges) != same_merges) continue;
          std::vector<PreTokenizer> steps;
          for (const std::string& pattern : rule.patterns)
            steps.push_back(pretokenizers::split(Regex(pattern), pretokenizers::Behavior::isolated));
          steps.push_back(pretokenizers::byte_level(false, false));
          if (words(text, steps) == words(text, meaning_.pre_tokenizers)) return std::string(name);
        }
    fail(ErrorKind::unsupported,
         "[quantize] {}: GGUF files have no name for the way this tokenizer cuts texts", file_.string());
  }

  static std::vector<std::string> words(const std::string& text, const std::vector<PreTokenizer>& steps) {
    Pieces pieces;
    pieces.text = text;
    pieces.spans = {{0, text.size()}};
    cut(pieces, steps);
    std::vector<std::string> result;
    for (size_t i = 0; i < pieces.spans.size(); ++i) result.emplace_back(pieces[i]);
    return result;
  }

  /// SentencePiece's: merges are ranked by the scores of their results.
  void set_spm() {
    writer_.set("tokenizer.ggml.model", "llama");
    writer_.set("tokenizer.ggml.pre", "default");
    const auto ranked = merges();
    std::map<std::string, size_t> rank;
    for (size_t i = 0; i < ranked.size(); ++i) rank.emplace(ranked[i].first + ranked[i].second, i);
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string& text = tokens_[id];
      if (kinds_[id] == Kind::normal && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'))
        kinds_[id] = Kind::byte;
      const auto found = rank.find(text);
      const size_t place = found == rank.end() ? ranked.size() : found->second;
      scores_.push_back(kinds_[id] == Kind::normal ? -static_cast<float>(place)
                        : kinds_[id] == Kind::byte ? 0.0f
                                                   : -1000.0f);
    }
    const std::vector<std::string> cut_text =
        words(normalized("x", meaning_.normalizers), meaning_.pre_tokenizers);
    writer_.set("tokenizer.ggml.add_space_prefix", cut_text.empty() || cut_text[0] != "x");
  }

  /// In GGUF files it is beginnings of words that are marked, not continuations.
  void set_wordpiece() {
    writer_.set("tokenizer.ggml.model", "bert");
    writer_.set("tokenizer.ggml.pre", "default");
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (kinds_[id] != Kind::normal) continue;
      tokens_[id] = tokens_[id].starts_with("##") ? tokens_[id].substr(2) : "\u2581" + tokens_[id];
    }
    const json normalizer = all_.value("normalizer", json());
    if (normalizer.is_object() && normalizer.contains("lowercase"))
      writer_.set("tokenizer.ggml.normalizer.lowercase", normalizer.value("lowercase", true));
    writer_.set("tokenizer.ggml.token_type_count", uint32_t{2});
  }

  void set_special() {
    const json model_config = read_object(file_.parent_path() / "config.json");
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"bos", "bos_token"}, {"eos", "eos_token"},       {"unknown", "unk_token"}, {"padding", "pad_token"},
        {"cls", "cls_token"}, {"seperator", "sep_token"}, {"mask", "mask_token"}};
    for (const auto& [name, key] : kNames) {
      json token = config_.value(key, json()), id = model_config.value(fmt::format("{}_id", key), json());
      if (token.is_object()) token = token.value("content", json());
      if (token.is_string() && ids_.contains(token.get<std::string>())) id = ids_[token.get<std::string>()];
      if (id.is_number_unsigned() && id < tokens_.size())
        writer_.set(fmt::format("tokenizer.ggml.{}_token_id", name), id.get<uint32_t>());
    }
    writer_.set("tokenizer.ggml.add_bos_token", !meaning_.prefix.empty());
    writer_.set("tokenizer.ggml.add_eos_token", !meaning_.suffix.empty());
  }

  void set_template() {
    if (const fs::path file = file_.parent_path() / "chat_template.jinja"; fs::exists(file))
      return writer_.set("tokenizer.chat_template", read_text_file(file));
    const json given = config_.value("chat_template", json());
    if (given.is_string()) writer_.set("tokenizer.chat_template", given.get<std::string>());
    if (given.is_array())
      for (const json& named : given)
        if (named.is_object() && named.value("name", json()) == "default")
          if (const json text = named.value("template", json()); text.is_string())
            writer_.set("tokenizer.chat_template", text.get<std::string>());
  }

  GgufWriter& writer_;
  fs::path file_;
  json all_, config_;
  TokenizerData meaning_;
  std::vector<std::string> tokens_;
  std::vector<float> scores_;
  std::vector<int32_t> kinds_;
  std::map<std::string, size_t> ids_;
};

}  // namespace

void set_hf_metadata(GgufWriter& writer, const llm::ModelFile& model, const fs::path& folder) {
  writer.set("general.architecture", model.architecture);
  writer.set("general.type", "model");
  writer.set("general.name", fs::absolute(folder / "").parent_path().filename().string());
  set_values(writer, model);
  if (!fs::exists(folder / "tokenizer.json")) return;
  const auto embedding = model.tensors.find("token_embd.weight");
  const size_t rows = embedding == model.tensors.end() || embedding->second.shape.empty()
                          ? 0
                          : static_cast<size_t>(embedding->second.shape[0]);
  try {
    TokenizerKeys(writer, folder, rows).set();
  } catch (const json::exception&) {
    fail(ErrorKind::io, "[quantize] {}: this is no tokenizer", (folder / "tokenizer.json").string());
  }
}

}  // namespace weft::quantize
