#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace weft {

/// The SHA-256 of bytes that come in pieces (FIPS 180-4).
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits. Nothing can be added afterwards.
  std::string finish();

 private:
  void mix(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> waiting_{};
  uint64_t size_ = 0;
};

/// Throws ErrorKind::io when the file cannot be read.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace weft
