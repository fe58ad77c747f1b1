#include "llm/weights.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "io/safetensors.h"
#include "ops/shorthand.h"
#include "quant/packing.h"

namespace weft::llm {
namespace {

constexpr std::string_view kLayerPrefix = "blk.";

size_t layer_of(const std::string& name) {
  size_t layer = 0;
  std::from_chars(name.data() + kLayerPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

/// "blk.3.attn_q.weight" -> "blk.3.attn_q.scale".
std::string scale_of(const std::string& matrix) {
  return matrix.substr(0, matrix.rfind('.')) + ".scale";
}

std::optional<DType> float_dtype(quant::Type type) {
  if (type == quant::Type::f32) return DType::f32;
  if (type == quant::Type::f16) return DType::f16;
  if (type == quant::Type::bf16) return DType::bf16;
  return std::nullopt;
}

}  // namespace

const Device& Weights::device_of(const std::string& name) const {
  if (!name.starts_with(kLayerPrefix)) return name.starts_with("output") ? devices_.back() : devices_.front();
  return devices_[std::min(layer_of(name),
                           devices_.size() - 1)];  // an adapter may name one that there is not
}

const StoredTensor& Weights::stored(const std::string& name, const Shape& shape) const {
  const StoredTensor& tensor = file_.tensor(name);
  if (tensor.shape != shape)
    fail(ErrorKind::io, "[model] {}: tensor '{}' is {}, expected {}", file_.name, name,
         to_string(tensor.shape), to_string(shape));
  return tensor;
}

Array Weights::upload(const StoredTensor& tensor, const Device& device) {
  std::vector<std::byte> scratch;
  return upload(tensor.type, tensor.shape, tensor.read(scratch), device);
}

Array Weights::upload(quant::Type type, Shape shape, std::span<const std::byte> bytes, const Device& device) {
  bytes_read_ += bytes.size();
  const std::optional<DType> dtype = float_dtype(type);
  if (!dtype)
    shape.back() = static_cast<int64_t>(quant::row_bytes(type, static_cast<uint64_t>(shape.back())));
  const auto array = [&]<typename T>(T) {
    return Array::from_span(std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)),
                            shape, device);
  };
  const Array result = dtype == DType::f32    ? array(float{})
                       : dtype == DType::f16  ? array(Float16{})
                       : dtype == DType::bf16 ? array(BFloat16{})
                                              : array(uint8_t{});
  if (on_read) on_read(bytes_read_);
  return result;
}

const Device& Weights::product_device(const std::string& name) const {
  return name == "token_embd.weight" ? devices_.back() : device_of(name);
}

const Array& Weights::vector(const std::string& name, const Shape& shape) {
  auto found = vectors_.find(name);
  if (found == vectors_.end()) {
    const StoredTensor& tensor = file_.tensor(name);
    const auto squeezed = [](Shape sizes) {
      std::erase(sizes, 1);
      return sizes;
    };
    if (squeezed(tensor.shape) != squeezed(shape)) stored(name, shape);
    bytes_read_ += tensor.bytes();
    found = vectors_.emplace(name, Array::from_vector(tensor.values(), shape, device_of(name))).first;
  }
  return found->second;
}

const Matrix& Weights::matrix(const std::string& name, int64_t n, int64_t k) {
  auto found = matrices_.find(name);
  if (found == matrices_.end()) {
    const StoredTensor& tensor = stored(name, {n, k});
    const Device device = product_device(name);
    const auto table = tables_.find(name);
    const bool shared =
        table != tables_.end() && float_dtype(tensor.type) && table->second.device() == device;
    found =
        matrices_.emplace(name, made_of(tensor.type, n, k, shared ? table->second : upload(tensor, device)))
            .first;
  } else if (found->second.n != n || found->second.k != k) {
    stored(name, {n, k});
  }
  return found->second;
}

const Matrix& Weights::stack(const std::string& name, int64_t count, int64_t n, int64_t k) {
  const auto found = matrices_.find(name);
  if (found != matrices_.end()) return found->second;
  const StoredTensor& tensor = stored(name, {count, n, k});
  const Device& device = device_of(name);
  if (float_dtype(tensor.type))
    return matrices_.emplace(name, made_of(tensor.type, n, k, upload(tensor, device))).first->second;
  // Zeros fill up the rows of each matrix.
  const int64_t rows = quant::whole_panels(n);
  std::vector<std::byte> scratch, filled;
  std::span<const std::byte> bytes = tensor.read(scratch);
  if (rows != n) {
    const auto row_bytes = static_cast<int64_t>(quant::row_bytes(tensor.type, static_cast<uint64_t>(k)));
    filled.resize(static_cast<size_t>(count * rows * row_bytes));
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(bytes.begin() + i * n * row_bytes, n * row_bytes, filled.begin() + i * rows * row_bytes);
    bytes = filled;
  }
  const Array blocks = upload(tensor.type, {count * rows, k}, bytes, device);
  return matrices_.emplace(name, made_of(tensor.type, n, k, blocks)).first->second;
}

Matrix Weights::made_of(quant::Type type, int64_t n, int64_t k, const Array& stored) const {
  Matrix matrix{type, n, k, stored};
  if (!float_dtype(type)) {
    matrix.data = call("repack", {stored}, {{"type", std::string(quant::traits(type).name)}, {"k", k}});
    eval(matrix.data);
  }
  return matrix;
}

bool Weights::are_alike(const std::vector<std::string>& names) const {
  return std::ranges::all_of(names, [&](const std::string& name) {
    return has(name) && file_.tensor(name).type == file_.tensor(names[0]).type &&
           product_device(name) == product_device(names[0]) && adapters(name).empty() && !has(scale_of(name));
  });
}

std::vector<std::string> Weights::unread() const {
  std::set<std::string, std::less<>> asked;
  for (const auto& [name, array] : vectors_) asked.insert(name);
  for (const auto& [names, matrix] : matrices_)  // some are joined
    for (size_t from = 0, to = 0; to != names.npos; from = to + 1)
      asked.insert(names.substr(from, (to = names.find('+', from)) - from));
  std::vector<std::string> result;
  for (const auto& [name, tensor] : file_.tensors) {
    if (!name.starts_with(kLayerPrefix) || asked.contains(name)) continue;
    // Of layers that are not run, of activations in four bits, and what another two say as well.
    const bool spare = layer_of(name) + 1 >= devices_.size() || name.ends_with(".input_scale") ||
                       (name.ends_with("attn_kv_b.weight") &&
                        has(fmt::format("{}{}.attn_k_b.weight", kLayerPrefix, layer_of(name))));
    if (!spare) result.push_back(name);
  }
  for (const auto& [name, adapter] : adapters_)
    if (!matrices_.contains(name) || tables_.contains(name)) result.push_back(name + ".lora_a");
  return result;
}

const Matrix& Weights::joined(const std::vector<std::string>& names, const std::vector<int64_t>& n, int64_t k,
                              int64_t turn) {
  auto found = matrices_.find(fmt::format("{}", fmt::join(names, "+")));
  if (found != matrices_.end()) return found->second;
  const quant::Type type = file_.tensor(names[0]).type;
  const uint64_t row_bytes = quant::row_bytes(type, static_cast<uint64_t>(k));
  const int64_t rows = std::accumulate(n.begin(), n.end(), int64_t{0});
  std::vector<std::byte> all(static_cast<uint64_t>(rows) * row_bytes), scratch;
  std::byte* start = all.data();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::span<const std::byte> bytes = stored(names[i], {n[i], k}).read(scratch);
    const uint64_t piece = static_cast<uint64_t>(turn > 0 ? turn : n[i]) * row_bytes,
                   step = turn > 0 ? piece * names.size() : piece;
    for (uint64_t from = 0, to = 0; from < bytes.size(); from += piece, to += step)
      std::copy_n(bytes.begin() + static_cast<int64_t>(from), piece, start + to);
    start += piece;
  }
  const Matrix matrix = made_of(type, rows, k, upload(type, {rows, k}, all, product_device(names[0])));
  return matrices_.emplace(fmt::format("{}", fmt::join(names, "+")), matrix).first->second;
}

const Array& Weights::table(const std::string& name, const Shape& shape) {
  auto found = tables_.find(name);
  if (found == tables_.end()) {
    const StoredTensor& tensor = stored(name, shape);
    const Device device = device_of(name);
    const auto matrix = matrices_.find(name);
    const bool shared =
        matrix != matrices_.end() && !matrix->second.is_packed() && product_device(name) == device;
    found = tables_.emplace(name, shared ? matrix->second.data : upload(tensor, device)).first;
  }
  return found->second;
}

const std::vector<Weights::Adapter>& Weights::adapters(const std::string& name) const {
  static const std::vector<Adapter> kNone;
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? kNone : found->second;
}

void Weights::add_adapter(const ModelFile& adapter, double scale) {
  if (!std::isfinite(scale)) fail(ErrorKind::invalid, "[model] {}: its scale is {}", adapter.name, scale);
  if (adapter.tensors.empty()) fail(ErrorKind::io, "[model] {}: there is no adapter in it", adapter.name);
  const double alpha = adapter.number("adapter.lora.alpha").value_or(0);
  for (const auto& [name, a] : adapter.tensors) {
    constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
    if (!name.ends_with(kA) && !name.ends_with(kB))
      fail(ErrorKind::io, "[model] {}: '{}' is no part of a LoRA adapter", adapter.name, one_line(name));
    const std::string target = name.substr(0, name.size() - kA.size());
    if (name.ends_with(kB)) {  // the other half says what both do
      adapter.tensor(target + ".lora_a");
      continue;
    }
    const StoredTensor &b = adapter.tensor(target + ".lora_b"), &weight = file_.tensor(target);
    const bool fits = a.shape.size() == 2 && b.shape.size() == 2 && weight.shape.size() == 2 &&
                      a.shape[0] == b.shape[1] && a.shape[0] > 0 && a.shape[1] == weight.shape[1] &&
                      b.shape[0] == weight.shape[0];
    if (!fits)
      fail(ErrorKind::io, "[model] {}: '{}' is {} times {}, which does not fit {}", adapter.name,
           one_line(target), to_string(b.shape), to_string(a.shape), to_string(weight.shape));
    const Device device = product_device(target);
    adapters_[target].push_back({Array::from_vector(a.values(), a.shape, device),
                                 Array::from_vector(b.values(), b.shape, device),
                                 scale * (alpha != 0 ? alpha / static_cast<double>(a.shape[0]) : 1)});
  }
}

}  // namespace weft::llm
