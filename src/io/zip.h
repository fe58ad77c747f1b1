#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/mapped_file.h"

namespace weft {

/// The files in a zip archive (a wheel, an npz). Nothing in it is trusted: errors are ErrorKind::io and read
/// `[zip] FILE: member 'x': ...`.
class Zip {
 public:
  struct Member {
    uint64_t size = 0;  ///< as it will be
    uint32_t crc = 0;
    bool deflated = false;
    std::span<const std::byte> data;  ///< as stored
  };

  explicit Zip(const std::filesystem::path& file);

  const std::map<std::string, Member, std::less<>>& members() const { return members_; }  ///< no folders
  /// Gives all bytes to `sink`, in pieces; throws at the end when they are not what the archive says.
  void read(std::string_view name, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::string file_;
  MappedFile mapping_;
  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace weft
