#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

/// Writes a GGUF file, value by value.
class GgufFile {
 public:
  GgufFile& text(std::string_view key, std::string_view value) { return begin(key, 8).put_text(value); }
  GgufFile& integer(std::string_view key, uint32_t value) { return begin(key, 4).put(value); }
  GgufFile& flag(std::string_view key, bool value) { return begin(key, 7).put(static_cast<uint8_t>(value)); }
  GgufFile& texts(std::string_view key, const std::vector<std::string>& values) {
    begin_list(key, 8, values.size());
    for (const std::string& value : values) put_text(value);
    return *this;
  }
  GgufFile& integers(std::string_view key, const std::vector<int32_t>& values) {
    begin_list(key, 5, values.size());
    for (int32_t value : values) put(value);
    return *this;
  }
  GgufFile& numbers(std::string_view key, const std::vector<float>& values) {
    begin_list(key, 6, values.size());
    for (float value : values) put(value);
    return *this;
  }
  GgufFile& bytes(std::string_view key, std::string_view values) {
    begin_list(key, 0, values.size());
    body_ += values;
    return *this;
  }

  /// `sizes`: innermost first, as in the file; the offset is where the values so far end, plus `shift`.
  GgufFile& tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                   std::string_view values, int64_t shift = 0) {
    values_.resize((values_.size() + 31) / 32 * 32);
    GgufFile entry;
    entry.put_text(name).put(static_cast<uint32_t>(sizes.size()));
    for (uint64_t size : sizes) entry.put(size);
    entry.put(type).put(static_cast<uint64_t>(static_cast<int64_t>(values_.size()) + shift));
    directory_ += entry.body_;
    values_ += values;
    ++tensors_;
    return *this;
  }

  std::string file() const {
    GgufFile head;
    head.body_ = "GGUF";
    head.put(uint32_t{3}).put(tensors_).put(count_);
    std::string bytes = head.body_ + body_ + directory_;
    if (tensors_ > 0) bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes + values_;
  }

 private:
  template <typename T>
  GgufFile& put(T value) {
    body_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufFile& put_text(std::string_view value) {
    put(static_cast<uint64_t>(value.size()));
    body_ += value;
    return *this;
  }
  GgufFile& begin(std::string_view key, uint32_t type) {
    ++count_;
    return put_text(key).put(type);
  }
  void begin_list(std::string_view key, uint32_t type, size_t size) {
    begin(key, 9).put(type).put(static_cast<uint64_t>(size));
  }

  std::string body_, directory_, values_;
  uint64_t count_ = 0, tensors_ = 0;
};

}  // namespace weft::test
