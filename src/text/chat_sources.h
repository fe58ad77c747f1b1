#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// The templates of a model by their names; the usual one is "default".
using ChatSources = std::map<std::string, std::string, std::less<>>;

/// From a GGUF file, a Hugging Face folder or a .jinja file. Throws ErrorKind::io where there is none.
ChatSources read_chat_sources(const std::filesystem::path& model);

/// Templates that come with weft. Empty when there is none of this name.
std::string_view built_in_chat_template(std::string_view name);
std::vector<std::string_view> built_in_chat_names();

}  // namespace weft
