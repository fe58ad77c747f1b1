#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::gpu {

/// The symbols of a 64-bit ELF shared object, read from the file and trusted in nothing: every offset is
/// checked. Needed for Dawn inside a Node addon, whose wgpu* functions are in the file's own symbol table
/// (.symtab) only.
class ElfFile {
 public:
  /// Throws ErrorKind::io when the file is not an ELF64 shared object of this byte order.
  explicit ElfFile(const std::filesystem::path& file);

  /// Functions defined in .symtab whose names begin with `prefix`: name -> address relative to the load
  /// address.
  std::map<std::string, uint64_t> functions(std::string_view prefix) const;

  /// File offsets of the st_info byte of dynamic symbols that are imported (undefined), strong, and begin
  /// with `prefix`. Making them weak there lets the object load without anyone who defines them.
  std::vector<uint64_t> strong_imports(std::string_view prefix) const;

 private:
  struct Section {
    uint32_t type;
    uint32_t link;
    uint64_t offset, size;
  };

  template <typename T>
  T at(uint64_t offset) const;
  std::string_view string_at(const Section& strings, uint64_t offset) const;
  template <typename Visit>  // visit(name, symbol, file offset of the symbol)
  void each_symbol(uint32_t section_type, Visit visit) const;

  std::string data_;
  std::vector<Section> sections_;
};

/// A private copy, in memory, of a Node addon whose imports from Node ("napi_") have been made weak, so that
/// it can be loaded outside Node. `path` is for dlopen, while this object lives.
class LoadableAddon {
 public:
  explicit LoadableAddon(const std::filesystem::path& addon);
  ~LoadableAddon();
  LoadableAddon(const LoadableAddon&) = delete;
  LoadableAddon& operator=(const LoadableAddon&) = delete;
  const std::string& path() const { return path_; }

 private:
  int file_ = -1;
  std::string path_;
};

}  // namespace weft::gpu
