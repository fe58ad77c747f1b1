#pragma once

#include <filesystem>
#include <string>

namespace weft {

/// All of a text that belongs to a model: a regular file, so that nothing waits for the writer of a pipe, of
/// at most 256 MiB, which is eight times the largest tokenizer.json. Throws ErrorKind::io.
std::string read_text_file(const std::filesystem::path& file);

}  // namespace weft
