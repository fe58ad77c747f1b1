#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::quantize {

/// An importance matrix as llama-imatrix writes it: how large the inputs of each column of a model's matrices
/// are, the mean of their squares.
class Importance {
 public:
  /// Nothing is known.
  Importance() = default;
  /// A GGUF file, or the older format. Throws ErrorKind::io for one that is neither, or damaged.
  static Importance open(const std::filesystem::path& file);
  /// Over memory; `name` stands for the file in messages.
  static Importance parse(std::span<const std::byte> bytes, const std::string& name);

  bool empty() const { return columns_.empty(); }
  size_t size() const { return columns_.size(); }
  /// Of one tensor: its columns, for a stack of matrices one behind the other. Empty where nothing is known.
  std::span<const float> find(std::string_view tensor) const;

  std::string dataset;  ///< the text that it was made of, if the file says so
  uint32_t chunks = 0;  ///< of that text

 private:
  std::map<std::string, std::vector<float>, std::less<>> columns_;
};

}  // namespace weft::quantize
