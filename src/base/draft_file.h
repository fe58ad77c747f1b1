#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

/// The file that a DraftFile of this name replaces: links are followed, so that they stay. Throws
/// ErrorKind::io where a folder is missing, and for a device, a pipe or anything else that is no regular
/// file.
std::filesystem::path writable_target(const std::filesystem::path& file);

/// A file that gets its name when it is whole: written beside the target, then renamed. A reader sees the old
/// file or the new one, and a full disk leaves the old one. Errors are ErrorKind::io with the system's
/// reason.
class DraftFile {
 public:
  explicit DraftFile(const std::filesystem::path& target);  ///< as writable_target says
  ~DraftFile();                                             ///< without `finish` nothing stays
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void finish();

 private:
  void write_all(std::span<const std::byte> bytes);
  [[noreturn]] void fail_to_write(int error);

  std::filesystem::path target_, draft_;
  int file_ = -1;
  std::vector<std::byte> waiting_;  // small pieces, written together
};

}  // namespace weft
