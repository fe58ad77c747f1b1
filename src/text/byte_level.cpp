#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace weft {
namespace {

constexpr char32_t kFirstOther = 0x100, kOthers = 68;  // bytes that are not printable, in their order

/// Printable characters of Latin-1 stand for themselves.
constexpr bool is_itself(char32_t byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, kFirstOther + kOthers> bytes;  // by character; -1: stands for none
};

const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet result;
    result.bytes.fill(-1);
    char32_t other = kFirstOther;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const char32_t character = is_itself(byte) ? byte : other++;
      utf8::append(result.characters[byte], character);
      result.bytes[character] = static_cast<int>(byte);
    }
    return result;
  }();
  return table;
}

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (char byte : bytes) text += alphabet().characters[static_cast<unsigned char>(byte)];
  return text;
}

std::string from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t pos = 0; pos < text.size();) {
    if (utf8::valid_length(text, pos) == 0) return std::string(text);
    const char32_t character = utf8::next(text, pos);
    const int byte = character < kFirstOther + kOthers ? alphabet().bytes[character] : -1;
    if (byte < 0) return std::string(text);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace weft
