#include "gpu/elf.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/paths.h"

namespace weft::gpu {

template <typename T>
T ElfFile::at(uint64_t offset) const {
  if (offset > data_.size() || data_.size() - offset < sizeof(T))
    fail(ErrorKind::io, "[elf] the file ends before offset {}", offset);
  T value;
  std::memcpy(&value, data_.data() + offset, sizeof value);
  return value;
}

ElfFile::ElfFile(const std::filesystem::path& file) {
  auto text = read_text(file);
  if (!text) fail(ErrorKind::io, "[elf] cannot read {}", file.string());
  data_ = *std::move(text);
  if (data_.size() < sizeof(Elf64_Ehdr)) fail(ErrorKind::io, "[elf] {} is not an ELF file", file.string());
  const auto header = at<Elf64_Ehdr>(0);
  const int byte_order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != byte_order || header.e_type != ET_DYN)
    fail(ErrorKind::io, "[elf] {} is not a 64-bit shared library of this machine's byte order",
         file.string());
  if (header.e_shentsize != sizeof(Elf64_Shdr) && header.e_shnum != 0)
    fail(ErrorKind::io, "[elf] {} has section headers of {} bytes", file.string(), header.e_shentsize);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto s = at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    const bool inside = s.sh_offset <= data_.size() && s.sh_size <= data_.size() - s.sh_offset;
    if (s.sh_type != SHT_NOBITS && !inside)
      fail(ErrorKind::io, "[elf] section {} of {} lies outside the file", i, file.string());
    sections_.push_back({s.sh_type, s.sh_link, s.sh_offset, s.sh_size});
  }
}

std::string_view ElfFile::string_at(const Section& strings, uint64_t offset) const {
  if (strings.type != SHT_STRTAB || offset >= strings.size) return {};
  const char* begin = data_.data() + strings.offset + offset;
  return {begin, strnlen(begin, strings.size - offset)};
}

template <typename Visit>
void ElfFile::each_symbol(uint32_t section_type, Visit visit) const {
  for (const Section& section : sections_) {
    if (section.type != section_type || section.link >= sections_.size()) continue;
    const Section& strings = sections_[section.link];
    for (uint64_t i = 0; i + sizeof(Elf64_Sym) <= section.size; i += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(section.offset + i);
      visit(string_at(strings, symbol.st_name), symbol, section.offset + i);
    }
  }
}

std::map<std::string, uint64_t> ElfFile::functions(std::string_view prefix) const {
  std::map<std::string, uint64_t> found;
  each_symbol(SHT_SYMTAB, [&](std::string_view name, const Elf64_Sym& symbol, uint64_t) {
    if (name.starts_with(prefix) && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF)
      found.emplace(name, symbol.st_value);
  });
  return found;
}

std::vector<uint64_t> ElfFile::strong_imports(std::string_view prefix) const {
  std::vector<uint64_t> found;
  each_symbol(SHT_DYNSYM, [&](std::string_view name, const Elf64_Sym& symbol, uint64_t offset) {
    if (name.starts_with(prefix) && symbol.st_shndx == SHN_UNDEF &&
        ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL)
      found.push_back(offset + offsetof(Elf64_Sym, st_info));
  });
  return found;
}

LoadableAddon::LoadableAddon(const std::filesystem::path& addon) {
  const std::vector<uint64_t> imports = ElfFile(addon).strong_imports("napi_");
  std::string data = read_text(addon).value_or("");
  for (uint64_t offset : imports)
    data.at(offset) = static_cast<char>(ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(data.at(offset))));
  file_ = memfd_create(addon.filename().c_str(), MFD_CLOEXEC);
  if (file_ < 0) fail(ErrorKind::io, "[elf] no memory file for {}: {}", addon.string(), std::strerror(errno));
  for (size_t done = 0; done < data.size();) {
    const ssize_t n = ::write(file_, data.data() + done, data.size() - done);
    if (n <= 0) {
      ::close(file_);
      fail(ErrorKind::memory, "[elf] cannot copy {} into memory: {}", addon.string(), std::strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
  path_ = fmt::format("/proc/self/fd/{}", file_);
}

LoadableAddon::~LoadableAddon() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace weft::gpu
