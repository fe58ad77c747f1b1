#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

/// What a model's files say about it.
namespace weft::cli {

/// Every key of a GGUF file, or of a folder's config.json, in their order. A list of more than eight elements
/// is {"length": N, "first": [...]}.
nlohmann::ordered_json metadata_of(const std::filesystem::path& model);

/// "gpt2, smollm" of a GGUF file, the class of a folder's; empty where there is none.
std::string tokenizer_kind(const std::filesystem::path& model, const nlohmann::ordered_json& metadata);

bool has_chat_template(const std::filesystem::path& model);

}  // namespace weft::cli
