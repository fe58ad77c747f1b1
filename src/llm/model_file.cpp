#include "llm/model_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/sha256.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace weft::llm {
namespace {

/// "model-00001-of-00003.gguf" -> the three files; any other name is itself.
std::vector<std::filesystem::path> parts_of(const std::filesystem::path& file, const Gguf& first) {
  const int64_t count = first.integer("split.count").value_or(1);
  if (count <= 1) return {file};
  const std::string name = file.filename().string();
  constexpr std::string_view kTail = "00001-of-00001.gguf";
  if (count > 99'999 || name.size() < kTail.size())
    fail(ErrorKind::io, "[model] {}: one of {} files, whose name does not end in -NNNNN-of-NNNNN.gguf",
         file.string(), count);
  const std::string stem = name.substr(0, name.size() - kTail.size());
  std::vector<std::filesystem::path> parts;
  for (int64_t i = 1; i <= count; ++i)
    parts.push_back(file.parent_path() / fmt::format("{}{:05}-of-{:05}.gguf", stem, i, count));
  return parts;
}

/// Tensors without values are no weights, and beside a 0 a shape may have any other size.
ModelFile with_values(ModelFile model) {
  for (const auto& [name, tensor] : model.tensors)
    if (std::ranges::find(tensor.shape, 0) != tensor.shape.end())
      fail(ErrorKind::io, "[model] {}: tensor '{}' is {}, which has no values", model.name, one_line(name),
           to_string(tensor.shape));
  return model;
}

ModelFile::Value value_of(const Gguf& file, const std::string& key) {
  if (file.is_list(key)) return file.numbers(key);
  if (file.is_text(key)) return std::string(*file.text(key));
  if (file.is_flag(key)) return *file.flag(key);
  return *file.number(key);
}

}  // namespace

std::vector<float> StoredTensor::values() const {
  std::vector<std::byte> scratch;
  const std::span<const std::byte> stored = read(scratch);
  std::vector<float> result(static_cast<size_t>(element_count(shape)));
  quant::dequantize(type, stored.data(), result.data(), result.size());
  return result;
}

uint64_t StoredTensor::bytes() const {
  return quant::row_bytes(type, static_cast<uint64_t>(element_count(shape)));
}

StoredTensor StoredTensor::computed(Shape shape, std::function<std::vector<float>()> make) {
  StoredTensor tensor{.shape = std::move(shape), .type = quant::Type::f32, .read = {}};
  tensor.read = [make = std::move(make)](std::vector<std::byte>& scratch) -> std::span<const std::byte> {
    const std::vector<float> values = make();
    const auto bytes = std::as_bytes(std::span(values));
    scratch.assign(bytes.begin(), bytes.end());
    return scratch;
  };
  return tensor;
}

uint64_t ModelFile::bytes() const {
  uint64_t sum = 0;
  for (const auto& [key, tensor] : tensors) sum += tensor.bytes();
  return sum;
}

uint64_t ModelFile::parameters() const {
  uint64_t sum = 0;
  for (const auto& [key, tensor] : tensors) sum += static_cast<uint64_t>(element_count(tensor.shape));
  return sum;
}

std::string ModelFile::fingerprint() const {
  Sha256 hash;
  const auto add = [&](std::string_view text) { hash.add(std::as_bytes(std::span(text))); };
  add(architecture + "\n");
  for (const auto& [key, value] : values)
    add(std::visit([&](const auto& v) { return fmt::format("{} {}\n", key, v); }, value));
  // A folder's tensors are read as a whole: of a large model some have to do, spread over all kinds of them.
  constexpr uint32_t kTurn = 2'654'435'769;  // the golden section of 2^32
  const uint64_t one_of = 1 + bytes() / (uint64_t{1} << 30);
  uint32_t place = 0;
  std::vector<std::byte> scratch;
  for (const auto& [key, tensor] : tensors) {
    add(fmt::format("{} {} {}\n", key, quant::traits(tensor.type).name, to_string(tensor.shape)));
    if (uint64_t{place += kTurn} * one_of > std::numeric_limits<uint32_t>::max()) continue;
    const std::span<const std::byte> all = tensor.read(scratch);
    constexpr size_t kPieces = 64, kPiece = 64;
    const size_t step = std::max(all.size() / kPieces, kPiece);
    for (size_t at = 0; at < all.size(); at += step)
      hash.add(all.subspan(at, std::min(kPiece, all.size() - at)));
  }
  return hash.finish();
}

ModelFile ModelFile::open(const std::filesystem::path& path) {
  return with_values(std::filesystem::is_directory(path) ? open_hf_model(path) : open_gguf_model(path));
}

ModelFile open_gguf_model(const std::filesystem::path& path) {
  ModelFile model;
  model.name = path.string();
  auto first = std::make_shared<Gguf>(Gguf::open(path));
  const std::optional<std::string_view> architecture = first->text("general.architecture");
  if (!architecture) fail(ErrorKind::io, "[model] {}: the file does not name its architecture", model.name);
  model.architecture = *architecture;
  const std::string prefix = model.architecture + ".";
  for (const auto& [name, stored] : first->stored()) {
    const std::string key(name);
    if (key.starts_with(prefix) && !first->is_text_list(key))
      model.values[key.substr(prefix.size())] = value_of(*first, key);
  }
  if (const std::optional<double> alpha = first->number("adapter.lora.alpha"))
    model.values["adapter.lora.alpha"] = *alpha;

  for (const std::filesystem::path& part : parts_of(path, *first)) {
    const auto file = part == path ? first : std::make_shared<Gguf>(Gguf::open(part));
    for (const auto& [name, tensor] : file->tensors()) {
      if (!tensor.type) continue;
      StoredTensor stored{.shape = tensor.shape, .type = *tensor.type, .read = {}};
      stored.read = [file, data = tensor.data](std::vector<std::byte>&) { return data; };
      if (!model.tensors.emplace(name, std::move(stored)).second)
        fail(ErrorKind::io, "[model] {}: tensor '{}' is in two of its files", model.name, one_line(name));
    }
  }
  // Files of LFM2 call the norm behind the last layer by the name of one before the first.
  if (model.architecture == "lfm2" && !model.has("output_norm.weight"))
    if (auto norm = model.tensors.extract("token_embd_norm.weight")) {
      norm.key() = "output_norm.weight";
      model.tensors.insert(std::move(norm));
    }
  return model;
}

ModelFile open_adapter(const std::filesystem::path& path, const ModelFile& base) {
  if (std::filesystem::is_directory(path)) return with_values(open_hf_adapter(path, base));
  ModelFile adapter = open_gguf_model(path);
  if (adapter.architecture != base.architecture)
    fail(ErrorKind::invalid, "[model] {}: an adapter for {}, not for {}", adapter.name,
         one_line(adapter.architecture), base.architecture);
  return with_values(std::move(adapter));
}

template <typename T>
std::optional<T> ModelFile::find(std::string_view key, std::string_view kind) const {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  fail(ErrorKind::io, "[model] {}: '{}' is not {}", name, key, kind);
}

void ModelFile::check_finite(std::string_view key, double value) const {
  if (!std::isfinite(value)) fail(ErrorKind::io, "[model] {}: '{}' is {}, no number", name, key, value);
}

std::optional<double> ModelFile::number(std::string_view key) const {
  const std::optional<double> value = find<double>(key, "a number");
  if (value) check_finite(key, *value);
  return value;
}

std::optional<double> ModelFile::positive(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (value && *value <= 0)
    fail(ErrorKind::io, "[model] {}: '{}' is {}; above 0 is needed", name, key, *value);
  return value;
}

std::optional<int64_t> ModelFile::integer(std::string_view key) const {
  const std::optional<double> value = number(key);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || std::abs(*value) > 1e15)
    fail(ErrorKind::io, "[model] {}: '{}' is {}, not a whole number", name, key, *value);
  return static_cast<int64_t>(*value);
}

std::optional<int64_t> ModelFile::natural(std::string_view key) const {
  const std::optional<int64_t> value = integer(key);
  if (value && *value < 0) fail(ErrorKind::io, "[model] {}: '{}' is {}; 0 is the least", name, key, *value);
  return value;
}

std::optional<bool> ModelFile::flag(std::string_view key) const {
  return find<bool>(key, "a bool");
}

std::optional<std::string> ModelFile::text(std::string_view key) const {
  return find<std::string>(key, "a text");
}

std::vector<double> ModelFile::numbers(std::string_view key) const {
  const auto found = values.find(key);
  if (found == values.end()) return {};
  std::vector<double> list;
  if (const double* one = std::get_if<double>(&found->second))
    list = {*one};
  else
    list = *find<std::vector<double>>(key, "a list of numbers");
  for (const double value : list) check_finite(key, value);
  return list;
}

int64_t ModelFile::required(std::string_view key) const {
  const std::optional<int64_t> value = integer(key);
  if (!value) fail(ErrorKind::io, "[model] {}: '{}.{}' is missing", name, architecture, key);
  if (*value <= 0) fail(ErrorKind::io, "[model] {}: '{}.{}' is {}", name, architecture, key, *value);
  return *value;
}

const StoredTensor& ModelFile::tensor(std::string_view tensor_name) const {
  const auto found = tensors.find(tensor_name);
  if (found == tensors.end())
    fail(ErrorKind::io, "[model] {}: tensor '{}' is missing", name, one_line(tensor_name));
  return found->second;
}

int64_t ModelFile::rows(std::string_view tensor_name, size_t dims) const {
  const Shape& shape = tensor(tensor_name).shape;
  if (shape.size() != dims)
    fail(ErrorKind::io, "[model] {}: tensor '{}' is {}, expected {} dims", name, tensor_name,
         to_string(shape), dims);
  return shape[0];
}

}  // namespace weft::llm
