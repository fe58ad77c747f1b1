#include "llm/embed.h"

#include <cmath>

#include "base/error.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace weft::llm {
namespace {

using nlohmann::json;

constexpr int64_t kContext = 8192;  // enough for pages of text; the cache of a whole context may not fit

/// A file of sentence-transformers; null where it is not there.
json read_optional(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return {};
  json value = read_json(file, "[embed]");
  if (value.is_discarded()) fail(ErrorKind::io, "[embed] {}: this is not JSON", file.string());
  return value;
}

Pooling pooling_of_gguf(const ModelFile& file) {
  const int64_t type = file.integer("pooling_type").value_or(1);
  if (type == 0 || type == 1) return Pooling::mean;
  if (type == 2) return Pooling::first;
  if (type == 3) return Pooling::last;
  fail(ErrorKind::unsupported, "[embed] {}: pooling_type {} gives no vector of a text", file.name, type);
}

Pooling pooling_of_folder(const std::filesystem::path& folder) {
  const json config = read_optional(folder / "1_Pooling" / "config.json");
  const auto set = [&](const char* key) {
    return config.is_object() && config.contains(key) && config[key] == true;
  };
  if (set("pooling_mode_cls_token")) return Pooling::first;
  if (set("pooling_mode_lasttoken")) return Pooling::last;
  for (const char* key : {"pooling_mode_max_tokens", "pooling_mode_weightedmean_tokens"})
    if (set(key))
      fail(ErrorKind::unsupported, "[embed] {}: '{}' is not known", (folder / "1_Pooling").string(), key);
  return Pooling::mean;
}

/// Modules behind the pooling may only normalise.
void check_modules(const std::filesystem::path& folder) {
  for (const json& module : read_optional(folder / "modules.json")) {
    const json type = module.is_object() ? module.value("type", json()) : json();
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (!name.ends_with("Transformer") && !name.ends_with("Pooling") && !name.ends_with("Normalize"))
      fail(ErrorKind::unsupported, "[embed] {}: module '{}' is not known", (folder / "modules.json").string(),
           one_line(name));
  }
}

}  // namespace

Embedder::Embedder(const std::filesystem::path& path, const Device& device)
    : model_(path, {.device = device, .default_context = kContext, .cache_type = quant::Type::f32}),
      tokenizer_(Tokenizer::open(path)),
      most_(model_.context()) {
  if (!std::filesystem::is_directory(path)) {
    pooling_ = pooling_of_gguf(model_.file());
    return;
  }
  check_modules(path);
  pooling_ = pooling_of_folder(path);
  const json config = read_optional(path / "sentence_bert_config.json");
  if (config.is_object() && config.contains("max_seq_length") && config["max_seq_length"].is_number_integer())
    most_ = std::clamp<int64_t>(config["max_seq_length"].get<int64_t>(), 2, most_);
}

std::vector<TokenId> Embedder::tokens_of(std::string_view text) const {
  std::vector<TokenId> ids = tokenizer_.encode(text, {.add_special = true});
  if (ids.empty()) fail(ErrorKind::invalid, "[embed] a text without tokens has no vector");
  if (std::ssize(ids) > most_) {
    const bool ends = tokenizer_.is_control(ids.back());  // [SEP] stays
    ids.erase(ids.begin() + most_ - (ends ? 1 : 0), ids.end() - (ends ? 1 : 0));
  }
  return ids;
}

std::vector<float> Embedder::embed(std::string_view text) {
  const std::vector<TokenId> ids = tokens_of(text);
  const auto width = static_cast<size_t>(model_.config().width);
  Sequence sequence = model_.new_sequence();
  const std::vector<float> rows = model_.activations(sequence, ids);
  truncate(sequence, 0, model_.pages());
  const size_t begin = pooling_ == Pooling::last ? ids.size() - 1 : 0,
               end = pooling_ == Pooling::first ? 1 : ids.size();
  std::vector<double> sum(width, 0);
  for (size_t i = begin; i < end; ++i)
    for (size_t j = 0; j < width; ++j) sum[j] += static_cast<double>(rows[i * width + j]);
  double square = 0;
  for (double x : sum) square += x * x;
  std::vector<float> result;
  for (double x : sum) result.push_back(static_cast<float>(square > 0 ? x / std::sqrt(square) : 0));
  return result;
}

}  // namespace weft::llm
