#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llm/model_file.h"
#include "weft/array.h"

namespace weft::llm {

/// A matrix (n, k) that activations are multiplied with: floats, or repacked blocks.
struct Matrix {
  quant::Type type = quant::Type::f32;
  int64_t n = 0, k = 0;
  Array data;  ///< (n, k), or words of `repack`

  bool is_packed() const { return data.dtype() == DType::u32; }
};

/// The weights of a model on their devices. Each is read when it is first asked for, so the forward pass of
/// an architecture is the only list of what a model has.
class Weights {
 public:
  /// `device_of(layer)` for tensors "blk.LAYER.", -1 for those before the layers, -2 for those after them.
  Weights(ModelFile file, std::function<Device(int64_t layer)> device_of)
      : file_(std::move(file)), device_of_(std::move(device_of)) {}

  const ModelFile& file() const { return file_; }
  bool has(std::string_view tensor) const { return file_.has(tensor); }
  Shape shape(const std::string& tensor) const { return file_.tensor(tensor).shape; }

  // Errors name the file, the tensor and what was expected (ErrorKind::io).
  const Array& vector(const std::string& name, const Shape& shape);  ///< f32; files may have (1, k) for (k)
  const Matrix& matrix(const std::string& name, int64_t n, int64_t k);
  /// A table to pick rows from: floats (rows, k), or u8 (rows, bytes of a row).
  const Array& table(const std::string& name, const Shape& shape);

  struct Adapter {
    Array a, b;  ///< (rank, k), (n, rank): adds scale x a^T b^T
    double scale = 1;
  };
  /// The LoRA adapters of a matrix.
  const std::vector<Adapter>& adapters(const std::string& name) const;
  void add_adapter(const ModelFile& adapter, double scale);

  uint64_t bytes_read() const { return bytes_read_; }
  std::function<void(uint64_t bytes_read)> on_read;  ///< after each tensor

 private:
  const StoredTensor& stored(const std::string& name, const Shape& shape) const;
  /// In the type it is stored in: floats as they are, blocks as rows of u8.
  Array upload(const StoredTensor& tensor, const Device& device);
  /// Where a product with a matrix is: the table of tokens is multiplied with after the layers.
  Device product_device(const std::string& name) const;

  ModelFile file_;
  std::function<Device(int64_t)> device_of_;
  std::map<std::string, Array> vectors_, tables_;
  std::map<std::string, Matrix> matrices_;
  std::map<std::string, std::vector<Adapter>> adapters_;
  uint64_t bytes_read_ = 0;
};

/// The layer that a tensor belongs to, as Weights counts them.
int64_t layer_of(std::string_view tensor);

}  // namespace weft::llm
