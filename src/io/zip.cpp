#include "io/zip.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "io/inflate.h"
#include "io/safetensors.h"

namespace weft {
namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kDirectoryMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr size_t kLocalSize = 30, kDirectorySize = 46, kEndSize = 22, kMaxComment = 0xffff;

template <typename T>
T at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
  }
  return table;
}

uint32_t crc_of(uint32_t crc, std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  for (const std::byte b : bytes) crc = crc >> 8 ^ kTable[(crc ^ std::to_integer<uint32_t>(b)) & 255];
  return crc;
}

/// Where the record that ends the archive is: before a comment of unknown length.
size_t find_end(std::span<const std::byte> bytes, const std::string& file) {
  for (size_t back = kEndSize; back <= std::min(bytes.size(), kEndSize + kMaxComment); ++back)
    if (at<uint32_t>(bytes, bytes.size() - back) == kEndMark) return bytes.size() - back;
  fail(ErrorKind::io, "[zip] {}: this is no zip archive, or it is cut off", file);
}

}  // namespace

Zip::Zip(const std::filesystem::path& file) : file_(file.string()), mapping_(file) {
  const std::span<const std::byte> bytes = mapping_.bytes();
  const size_t end = find_end(bytes, file_);
  const uint32_t count = at<uint16_t>(bytes, end + 10);
  size_t next = at<uint32_t>(bytes, end + 16);
  const auto damaged = [this] { fail(ErrorKind::io, "[zip] {}: the directory is damaged", file_); };
  for (uint32_t i = 0; i < count; ++i) {
    if (next > end || end - next < kDirectorySize || at<uint32_t>(bytes, next) != kDirectoryMark) damaged();
    const auto entry = bytes.subspan(next, end - next);
    const size_t name_size = at<uint16_t>(entry, 28);
    const size_t size = kDirectorySize + name_size + at<uint16_t>(entry, 30) + at<uint16_t>(entry, 32);
    if (size > entry.size()) damaged();
    next += size;
    const std::string name(reinterpret_cast<const char*>(entry.data()) + kDirectorySize, name_size);
    const auto wrong = [&](std::string_view what) {
      fail(ErrorKind::io, "[zip] {}: member '{}': {}", file_, one_line(name), what);
    };
    if (name.ends_with('/')) continue;
    const uint16_t flags = at<uint16_t>(entry, 8), method = at<uint16_t>(entry, 10);
    if (flags & 1) wrong("is encrypted");
    if (method != 0 && method != 8) wrong(fmt::format("method {} is not known", method));
    const uint64_t stored = at<uint32_t>(entry, 20), offset = at<uint32_t>(entry, 42);
    if (stored == 0xffffffff || offset == 0xffffffff) wrong("is too large: zip64 is not known");
    if (offset > bytes.size() || bytes.size() - offset < kLocalSize ||
        at<uint32_t>(bytes, offset) != kLocalMark)
      wrong("is not where the directory says");
    const uint64_t begin =
        offset + kLocalSize + at<uint16_t>(bytes, offset + 26) + at<uint16_t>(bytes, offset + 28);
    if (begin > bytes.size() || stored > bytes.size() - begin) wrong("is cut off");
    const Member member{.size = at<uint32_t>(entry, 24),
                        .crc = at<uint32_t>(entry, 16),
                        .deflated = method == 8,
                        .data = bytes.subspan(begin, stored)};
    if (!members_.emplace(name, member).second) wrong("is there twice");
  }
}

void Zip::read(std::string_view name, const std::function<void(std::span<const std::byte>)>& sink) const {
  const auto found = members_.find(name);
  if (found == members_.end()) fail(ErrorKind::io, "[zip] {}: has no member '{}'", file_, one_line(name));
  const Member& member = found->second;
  uint64_t size = 0;
  uint32_t crc = 0xffffffff;
  const auto wrong = [&](std::string_view what) {
    fail(ErrorKind::io, "[zip] {}: member '{}': {}", file_, one_line(name), what);
  };
  const auto check = [&](std::span<const std::byte> bytes) {
    size += bytes.size();
    if (size > member.size) wrong("is larger than the archive says");  // a bomb, maybe
    crc = crc_of(crc, bytes);
    sink(bytes);
  };
  if (member.deflated)
    inflate(member.data, check);
  else
    check(member.data);
  if (size != member.size || ~crc != member.crc) wrong("is damaged: its checksum is wrong");
}

}  // namespace weft
