#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "llm/model.h"
#include "weft/text.h"

namespace weft::llm {

/// Which activations of a text's tokens become its vector.
enum class Pooling { mean, first, last };

/// Texts to vectors of length 1, near each other where the texts mean the same: by a model made for it
/// (BERT, in a GGUF file or a folder of sentence-transformers), or by any language model.
class Embedder {
 public:
  Embedder(const std::filesystem::path& path, const Device& device);

  Pooling pooling() const { return pooling_; }
  /// Tokens past the most that the model takes are left out.
  std::vector<float> embed(std::string_view text);

 private:
  std::vector<TokenId> tokens_of(std::string_view text) const;

  Model model_;
  Tokenizer tokenizer_;
  Pooling pooling_ = Pooling::mean;
  int64_t most_ = 0;  ///< tokens
};

}  // namespace weft::llm
