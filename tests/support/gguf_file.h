#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::test {

/// Writes the metadata of a GGUF file, value by value.
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

  std::string file() const {
    GgufFile head;
    head.body_ = "GGUF";
    head.put(uint32_t{3}).put(uint64_t{0}).put(count_);
    return head.body_ + body_;
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

  std::string body_;
  uint64_t count_ = 0;
};

}  // namespace weft::test
