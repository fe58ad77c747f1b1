#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::utf8 {

constexpr char32_t kReplacement = 0xFFFD;

/// The character at `pos` of valid UTF-8; `pos` moves behind it.
inline char32_t next(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[pos + i]));
  };
  const char32_t first = byte(0);
  char32_t code = first;
  size_t length = 1;
  if (first >= 0xF0) {
    code = (first & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
    length = 4;
  } else if (first >= 0xE0) {
    code = (first & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
    length = 3;
  } else if (first >= 0xC0) {
    code = (first & 31) << 6 | (byte(1) & 63);
    length = 2;
  }
  pos += length;
  return code;
}

/// The character before `pos`, which is not 0; `pos` moves to its begin.
inline char32_t previous(std::string_view text, size_t& pos) {
  do --pos;
  while ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  size_t begin = pos;
  return next(text, begin);
}

inline size_t next_position(std::string_view text, size_t pos) {
  next(text, pos);
  return pos;
}

void append(std::string& text, char32_t code);

/// How many bytes the valid character at `pos` has. 0 when there is none: a stray or missing continuation, an
/// overlong form, a surrogate.
size_t valid_length(std::string_view text, size_t pos);

/// `text` with U+FFFD in the place of every byte that belongs to no valid character.
std::string valid(std::string_view text);

/// Length of the longest prefix that does not end inside a character whose other bytes may still come.
size_t complete_length(std::string_view text);

std::u32string decode(std::string_view valid_text);
std::string encode(std::u32string_view codes);

}  // namespace weft::utf8
