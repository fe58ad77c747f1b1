#include "io/gguf_writer.h"

#include <algorithm>

#include "base/draft_file.h"
#include "base/error.h"
#include "io/safetensors.h"

namespace weft {
namespace {

constexpr uint64_t kAlignment = 32;  // the format's default
constexpr size_t kMaxName = 63, kMaxDims = 4;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void pad(DraftFile& file, uint64_t written) {
  file.write(std::string(aligned(written) - written, '\0'));
}

}  // namespace

void GgufWriter::set_all(const Gguf& from) {
  for (const auto& [key, stored] : from.stored())
    if (key != "general.alignment") set_stored(key, std::string(stored));
}

void GgufWriter::remove(std::string_view key) {
  std::erase_if(values_, [key](const auto& item) { return item.first == key; });
}

void GgufWriter::set_stored(std::string_view key, std::string stored) {
  remove(key);
  values_.emplace_back(key, std::move(stored));
}

void GgufWriter::add(const std::string& name, const Shape& shape, quant::Type type) {
  const auto wrong = [&](std::string_view what) {
    fail(ErrorKind::invalid, "[gguf] tensor '{}': {}", one_line(name), what);
  };
  if (name.size() > kMaxName) wrong(fmt::format("the name is longer than {} bytes", kMaxName));
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end()) wrong("is there twice");
  if (shape.size() > kMaxDims)
    wrong(fmt::format("{} dims; GGUF files have up to {}", shape.size(), kMaxDims));
  const uint64_t row = shape.empty() ? 1 : static_cast<uint64_t>(shape.back());
  const uint64_t rows = row == 0 ? 0 : static_cast<uint64_t>(element_count(shape)) / row;
  tensors_.push_back({name, shape, type, rows * quant::row_bytes(type, row)});
}

/// Everything before the values.
std::string GgufWriter::head() const {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, static_cast<uint64_t>(tensors_.size()));
  put(out, static_cast<uint64_t>(values_.size()));
  for (const auto& [key, stored] : values_) {
    put(out, key);
    out += stored;
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) put(out, static_cast<uint64_t>(tensor.shape[i]));
    put(out, static_cast<uint32_t>(quant::traits(tensor.type).ggml_id));
    put(out, offset);
    offset += aligned(tensor.bytes);
  }
  return out;
}

void GgufWriter::write(const std::filesystem::path& file,
                       const std::function<void(const std::string&, const Sink&)>& values) const {
  DraftFile draft(file);
  const std::string begin = head();
  draft.write(begin);
  pad(draft, begin.size());
  for (const Tensor& tensor : tensors_) {
    uint64_t written = 0;
    values(tensor.name, [&](std::span<const std::byte> bytes) {
      written += bytes.size();
      draft.write(bytes);
    });
    if (written != tensor.bytes)
      fail(ErrorKind::invalid, "[gguf] tensor '{}': {} bytes were written where {} belong",
           one_line(tensor.name), written, tensor.bytes);
    pad(draft, written);
  }
  draft.finish();
}

}  // namespace weft
