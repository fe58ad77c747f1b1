#pragma once

#include <filesystem>

#include "io/gguf_writer.h"
#include "llm/model_file.h"

namespace weft::quantize {

/// The metadata that a GGUF file of `model` has: its name, its numbers, its tokenizer and chat template.
/// `model` was read from `folder`. Throws ErrorKind::unsupported for a tokenizer that GGUF files cannot have.
void set_hf_metadata(GgufWriter& writer, const llm::ModelFile& model, const std::filesystem::path& folder);

}  // namespace weft::quantize
