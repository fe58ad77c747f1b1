#include "models/metadata.h"

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/paths.h"
#include "io/gguf.h"
#include "text/chat_sources.h"

namespace weft::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShown = 8;  // elements of a list

/// Most numbers are 32 bits wide: 1e-05 and not 9.999999747378752e-06.
ordered_json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value ? std::strtod(fmt::format("{}", narrow).c_str(), nullptr)
                                              : value;
}

/// Elements are made one by one, and only those that are shown.
template <typename Elements, typename Make>
ordered_json shortened(const Elements& elements, const Make& make) {
  ordered_json first = ordered_json::array();
  for (const auto& element : elements) {
    if (first.size() == kShown) break;
    first.push_back(make(element));
  }
  if (elements.size() <= kShown) return first;
  return {{"length", elements.size()}, {"first", first}};
}

ordered_json value_of(const Gguf& file, std::string_view key) {
  if (file.is_text_list(key))
    return shortened(file.texts(key), [](std::string_view text) { return std::string(text); });
  if (file.is_list(key)) return shortened(file.numbers(key), number);
  if (file.is_text(key)) return std::string(file.text(key).value_or(""));
  if (file.is_flag(key)) return file.flag(key).value_or(false);
  return number(file.number(key).value_or(0));
}

ordered_json value_of(const ordered_json& value) {
  if (value.is_array())
    return shortened(value, [](const ordered_json& element) { return value_of(element); });
  if (!value.is_object()) return value;
  ordered_json result = ordered_json::object();
  for (const auto& [key, inner] : value.items()) result[key] = value_of(inner);
  return result;
}

ordered_json read_json(const std::filesystem::path& file) {
  return ordered_json::parse(read_text(file).value_or(""), nullptr, false);
}

/// A text; empty where it is something else or nothing.
std::string text_at(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

ordered_json metadata_of(const std::filesystem::path& model) {
  if (std::filesystem::is_directory(model)) return value_of(read_json(model / "config.json"));
  const Gguf file = Gguf::open(model);
  ordered_json result = ordered_json::object();
  for (const auto& [key, stored] : file.stored()) result[std::string(key)] = value_of(file, key);
  return result;
}

std::string tokenizer_kind(const std::filesystem::path& model, const ordered_json& metadata) {
  if (std::filesystem::is_directory(model))
    return text_at(read_json(model / "tokenizer_config.json"), "tokenizer_class");
  const std::string pre = text_at(metadata, "tokenizer.ggml.pre");
  return text_at(metadata, "tokenizer.ggml.model") + (pre.empty() ? "" : ", " + pre);
}

bool has_chat_template(const std::filesystem::path& model) {
  try {
    return !read_chat_sources(model).empty();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace weft::cli
