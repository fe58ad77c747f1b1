#pragma once

#include <cstdint>
#include <filesystem>

#include "quant/quant.h"

namespace weft::test {

/// A llama with random weights and the vocabulary of tests/data/models/qwen2.
struct TinyModel {
  int64_t layers = 2, width = 64, hidden = 96, heads = 4, kv_heads = 2, head_dim = 32;
  unsigned seed = 1;
  quant::Type type = quant::Type::f32;  ///< of the layers' matrices
};

/// As a GGUF file.
void write_tiny_model(const std::filesystem::path& file, const TinyModel& shape = {});

}  // namespace weft::test
