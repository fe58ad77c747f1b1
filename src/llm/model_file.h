#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "quant/quant.h"
#include "weft/shape.h"

namespace weft::llm {

/// A tensor of a model, as ggml stores it.
struct StoredTensor {
  Shape shape;  ///< row-major
  quant::Type type = quant::Type::f32;
  /// Its bytes. They are the file's own, or put together in `scratch`.
  std::function<std::span<const std::byte>(std::vector<std::byte>& scratch)> read;

  /// Values that `make` computes when they are read.
  static StoredTensor computed(Shape shape, std::function<std::vector<float>()> make);

  std::vector<float> values() const;  ///< decoded
  uint64_t bytes() const;
};

/// What is known of a model before any of its weights is read: a GGUF file (also one of several that a model
/// was split into), or a folder of Hugging Face's, which is made to look like one. Names of tensors and keys
/// are those of GGUF; keys come without the architecture: "attention.head_count".
class ModelFile {
 public:
  using Value = std::variant<bool, double, std::string, std::vector<double>>;

  /// Throws ErrorKind::io for a damaged file, ErrorKind::unsupported for what weft does not know.
  static ModelFile open(const std::filesystem::path& path);

  std::string name;          ///< for messages
  std::string architecture;  ///< "llama"
  std::map<std::string, Value, std::less<>> values;
  std::map<std::string, StoredTensor, std::less<>> tensors;
  bool exact = false;  ///< Hugging Face's: its activations are floats, also where weights are blocks

  // nullopt, or an empty list, where the key is missing; ErrorKind::io where it has a value of another kind.
  // Numbers are finite.
  std::optional<double> number(std::string_view key) const;
  std::optional<double> positive(std::string_view key) const;  ///< a number above 0
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<int64_t> natural(std::string_view key) const;  ///< an integer that is not below 0
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;  ///< one number is a list of one

  int64_t required(std::string_view key) const;  ///< an integer above 0, or ErrorKind::io

  uint64_t bytes() const;       ///< of all tensors
  uint64_t parameters() const;  ///< their elements
  /// SHA-256 of the values, of all tensors' names, types and shapes, and of bytes here and there in them.
  std::string fingerprint() const;

  bool has(std::string_view tensor) const { return tensors.contains(tensor); }
  const StoredTensor& tensor(std::string_view name) const;  ///< ErrorKind::io where it is missing
  /// The first size of a tensor that has so many dims; ErrorKind::io for another one.
  int64_t rows(std::string_view tensor, size_t dims = 2) const;

 private:
  template <typename T>
  std::optional<T> find(std::string_view key, std::string_view kind) const;
  void check_finite(std::string_view key, double value) const;
};

/// The two kinds of files behind ModelFile::open.
ModelFile open_gguf_model(const std::filesystem::path& file);
ModelFile open_hf_model(const std::filesystem::path& folder);

/// A LoRA adapter for `base`: a GGUF file, or a folder of PEFT's. Tensors are "NAME.lora_a" and
/// "NAME.lora_b".
ModelFile open_adapter(const std::filesystem::path& path, const ModelFile& base);
ModelFile open_hf_adapter(const std::filesystem::path& folder, const ModelFile& base);

}  // namespace weft::llm
