#include "quantize/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace weft::quantize {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

/// Little-endian values one behind the other.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name) : left_(bytes), name_(name) {}

  bool at_end() const { return left_.empty(); }
  int32_t integer() {
    int32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(uint64_t count) {
    if (count > left_.size()) fail(ErrorKind::io, "[imatrix] {}: the file ends too early", name_);
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  std::string text() {
    const auto bytes = take(length());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::vector<float> numbers() {
    const auto bytes = take(uint64_t{4} * length());
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  uint32_t length() {
    const int32_t value = integer();
    if (value < 1) fail(ErrorKind::io, "[imatrix] {}: this is no importance matrix", name_);
    return static_cast<uint32_t>(value);
  }

  std::span<const std::byte> left_;
  const std::string& name_;
};

std::vector<float> floats_of(const Gguf& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end() || found->second.type != quant::Type::f32)
    fail(ErrorKind::io, "[imatrix] {}: '{}' is missing, or not f32", file.name(), one_line(name));
  std::vector<float> values(found->second.data.size() / 4);
  std::memcpy(values.data(), found->second.data.data(), found->second.data.size());
  return values;
}

/// Sums over tokens, in as many parts as there are counts, become means; of a part that saw none, ones.
void divide(std::vector<float>& sums, const std::vector<float>& counts) {
  const size_t part = sums.size() / counts.size();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = counts[i / part] > 0 ? sums[i] / counts[i / part] : 1;
}

void check(const std::vector<float>& values, const std::string& name, const std::string& tensor) {
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x) && x >= 0; }))
    fail(ErrorKind::io, "[imatrix] {}: '{}' has values that are no mean squares", name, one_line(tensor));
}

}  // namespace

Importance Importance::open(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  return parse(mapped.bytes(), file.string());
}

Importance Importance::parse(std::span<const std::byte> bytes, const std::string& name) {
  Importance result;
  if (bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0) {
    const Gguf file = Gguf::parse(bytes, name);
    for (const auto& [tensor, stored] : file.tensors()) {
      if (!tensor.ends_with(kSums)) continue;
      const std::string of = tensor.substr(0, tensor.size() - kSums.size());
      std::vector<float> sums = floats_of(file, tensor);
      const std::vector<float> counts = floats_of(file, of + std::string(kCounts));
      if (counts.empty() || sums.empty() || sums.size() % counts.size() != 0)
        fail(ErrorKind::io, "[imatrix] {}: '{}' has {} sums and {} counts", name, one_line(of), sums.size(),
             counts.size());
      divide(sums, counts);
      result.columns_[of] = std::move(sums);
    }
    if (const auto datasets = file.texts("imatrix.datasets"); !datasets.empty()) result.dataset = datasets[0];
    result.chunks = static_cast<uint32_t>(file.integer("imatrix.chunk_count").value_or(0));
  } else {
    // Count | for each tensor: name, calls, sums of means, each with its length | chunks, dataset
    Reader reader(bytes, name);
    for (int32_t left = reader.integer(); left > 0; --left) {
      const std::string tensor = reader.text();
      const auto calls = static_cast<float>(reader.integer());
      std::vector<float> sums = reader.numbers();
      if (calls > 0) divide(sums, {calls});
      result.columns_[tensor] = std::move(sums);
    }
    if (!reader.at_end()) {
      result.chunks = static_cast<uint32_t>(reader.integer());
      result.dataset = reader.text();
    }
  }
  if (result.empty()) fail(ErrorKind::io, "[imatrix] {}: this is no importance matrix", name);
  for (const auto& [tensor, values] : result.columns_) check(values, name, tensor);
  return result;
}

std::span<const float> Importance::find(std::string_view tensor) const {
  const auto found = columns_.find(tensor);
  return found == columns_.end() ? std::span<const float>() : found->second;
}

}  // namespace weft::quantize
