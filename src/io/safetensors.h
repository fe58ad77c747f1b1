#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array/host_tensor.h"
#include "io/mapped_file.h"

namespace weft {

/// A safetensors file: 8 bytes of header length, a JSON header, the values of all tensors without gaps.
/// Nothing in the file is trusted: whatever opens without an error can be read without another check.
/// Errors read `[safetensors] FILE: tensor 'x': ...`, ErrorKind::io where the file is damaged.
class Safetensors {
 public:
  struct Info {
    DType dtype;
    Shape shape;
    std::span<const std::byte> data;  ///< as stored: not aligned, a bool may be any byte
  };

  static Safetensors open(const std::filesystem::path& file);
  /// Over memory that outlives the result; `name` stands for the file in messages.
  static Safetensors parse(std::span<const std::byte> bytes, const std::string& name);

  std::vector<std::string> names() const;  ///< sorted; without __metadata__
  bool contains(std::string_view name) const { return entries_.contains(name); }

  // Both throw ErrorKind::invalid for a name that is not there, and ErrorKind::unsupported for a dtype that
  // weft has not. Such a tensor is no reason to refuse the file: a model may never touch it.
  Info info(std::string_view name) const;
  HostTensor load(std::string_view name) const;

  struct Entry {
    std::string dtype;  ///< as spelled in the file
    Shape shape;
    uint64_t begin = 0, end = 0;  ///< bytes, from the end of the header
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

 private:
  Safetensors() = default;

  std::string file_;
  std::optional<MappedFile> mapping_;
  std::span<const std::byte> data_;  // all values, behind the header
  Entries entries_;
};

/// As a DraftFile. Largest elements first, so that every value is
/// aligned to its size. Throws ErrorKind::invalid for a tensor whose bytes do not fit its shape,
/// ErrorKind::io.
void write_safetensors(const std::filesystem::path& file, const std::map<std::string, HostTensor>& tensors);

/// Text out of a file, fit for one line of a message: at most 100 characters of printable ASCII.
std::string one_line(std::string_view text);

}  // namespace weft
