#pragma once

#include "io/gguf.h"
#include "text/tokenizer_data.h"

namespace weft {

/// The tokenizer in a GGUF's metadata (tokenizer.ggml.*). Ids are those of llama.cpp: where its
/// pre-tokenizers differ from the model's own, llama.cpp's count. A control token's text never becomes that
/// token unless it is asked for, also where llama.cpp makes an exception (gpt-oss).
TokenizerData read_gguf_tokenizer(const Gguf& file);

}  // namespace weft
