#pragma once

#include <filesystem>
#include <string_view>

#include "text/tokenizer_data.h"

namespace weft {

/// A tokenizer.json of the Hugging Face tokenizers library, with the tokenizer_config.json beside it if there
/// is one.
TokenizerData read_tokenizer_json(const std::filesystem::path& file);

/// The same from memory; `config` may be empty, `name` stands for the file in messages.
TokenizerData parse_tokenizer_json(std::string_view text, std::string_view config, const std::string& name);

}  // namespace weft
