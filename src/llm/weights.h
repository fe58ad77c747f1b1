#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llm/model_file.h"
#include "weft/array.h"

namespace weft::llm {

/// A matrix (n, k) that activations are multiplied with, or a stack of them: floats, or repacked blocks.
struct Matrix {
  quant::Type type = quant::Type::f32;
  int64_t n = 0, k = 0;
  Array data;  ///< (n, k), (count, n, k), or words of `repack`

  bool is_packed() const { return data.dtype() == DType::u32; }
};

/// The weights of a model on their devices. Each is read when it is first asked for, so the forward pass of
/// an architecture is the only list of what a model has.
class Weights {
 public:
  /// `devices`: of each layer's tensors "blk.LAYER.", then of those after the layers. Those before them are
  /// on the first.
  Weights(ModelFile file, std::vector<Device> devices)
      : file_(std::move(file)), devices_(std::move(devices)) {}

  const ModelFile& file() const { return file_; }
  const std::vector<Device>& devices() const { return devices_; }
  bool has(std::string_view tensor) const { return file_.has(tensor); }
  Shape shape(const std::string& tensor) const { return file_.tensor(tensor).shape; }

  // Errors name the file, the tensor and what was expected (ErrorKind::io).
  const Array& vector(const std::string& name, const Shape& shape);  ///< f32; files may have (1, k) for (k)
  const Matrix& matrix(const std::string& name, int64_t n, int64_t k);
  /// A stack of matrices, as expert_matmul takes it.
  const Matrix& stack(const std::string& name, int64_t count, int64_t n, int64_t k);
  /// Whether matrices can be one: of one type, on one device, without adapters and scales of their own.
  bool are_alike(const std::vector<std::string>& names) const;
  /// Matrices (n, k) that are alike as one, `turn` rows of each in turn; 0: one behind the other.
  const Matrix& joined(const std::vector<std::string>& names, const std::vector<int64_t>& n, int64_t k,
                       int64_t turn = 0);
  /// A table to pick rows from: floats (rows, k), or u8 (rows, bytes of a row).
  const Array& table(const std::string& name, const Shape& shape);

  struct Adapter {
    Array a, b;  ///< (rank, k), (n, rank): adds scale x a^T b^T
    double scale = 1;
  };
  /// The LoRA adapters of a matrix.
  const std::vector<Adapter>& adapters(const std::string& name) const;
  void add_adapter(const ModelFile& adapter, double scale);

  /// After a pass: tensors of a layer that no part of it asked for, and adapters that nothing was added of.
  /// What is left out in silence gives other logits than the model's.
  std::vector<std::string> unread() const;

  std::function<void(uint64_t bytes_read)> on_read;  ///< after each tensor

 private:
  const Device& device_of(const std::string& name) const;
  const StoredTensor& stored(const std::string& name, const Shape& shape) const;
  /// In the type it is stored in: floats as they are, blocks as rows of u8.
  Array upload(const StoredTensor& tensor, const Device& device);
  Array upload(quant::Type type, Shape shape, std::span<const std::byte> bytes, const Device& device);
  Matrix made_of(quant::Type type, int64_t n, int64_t k, const Array& stored) const;
  /// Where a product with a matrix is: the table of tokens is multiplied with after the layers.
  const Device& product_device(const std::string& name) const;

  ModelFile file_;
  std::vector<Device> devices_;
  std::map<std::string, Array> vectors_, tables_;
  std::map<std::string, Matrix> matrices_;
  std::map<std::string, std::vector<Adapter>> adapters_;
  uint64_t bytes_read_ = 0;
};

}  // namespace weft::llm
