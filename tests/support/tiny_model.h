#pragma once

#include <cstdint>
#include <filesystem>

namespace weft::test {

/// A llama with random weights and the vocabulary of tests/data/models/qwen2.
struct TinyModel {
  int64_t layers = 2, width = 64, hidden = 96, heads = 4, kv_heads = 2, head_dim = 32;
  unsigned seed = 1;
};

/// As a GGUF file of f32.
void write_tiny_model(const std::filesystem::path& file, const TinyModel& shape = {});

}  // namespace weft::test
