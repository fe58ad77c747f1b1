#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace weft {

/// Memory of one device. What is inside only its backend knows.
class Storage {
 public:
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  uint64_t size() const { return size_; }
  const std::string& label() const { return label_; }

 protected:
  Storage(uint64_t size, std::string_view label) : size_(size), label_(label) {}

 private:
  uint64_t size_;
  std::string label_;
};

using StoragePtr = std::shared_ptr<Storage>;

}  // namespace weft
