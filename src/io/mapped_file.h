#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace weft {

/// A regular file seen as memory, read-only. The bytes stay where they are when the object is moved.
/// Someone who shortens the file meanwhile makes reads past its new end fatal (SIGBUS), as with every
/// mapping.
class MappedFile {
 public:
  /// Throws ErrorKind::io when `file` cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace weft
