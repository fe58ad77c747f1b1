#include "text/utf8.h"

#include <algorithm>

namespace weft::utf8 {
namespace {

constexpr bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// What the first byte announces; 0 for a byte that begins nothing.
constexpr size_t announced_length(char c) {
  const auto first = static_cast<unsigned char>(c);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

void append(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 63));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 63));
    put(0x80 | (code >> 6 & 63));
    put(0x80 | (code & 63));
  }
}

size_t valid_length(std::string_view text, size_t pos) {
  const size_t length = announced_length(text[pos]);
  if (length <= 1) return length;
  if (text.size() - pos < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(text[pos + i])) return 0;
  const char32_t code = next(text, pos);
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kSmallest[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

std::string valid(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = valid_length(text, pos);
    if (length == 0)
      append(result, kReplacement);
    else
      result.append(text, pos, length);
    pos += std::max<size_t>(length, 1);
  }
  return result;
}

size_t complete_length(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const char c = text[text.size() - back];
    if (is_continuation(c)) continue;
    return announced_length(c) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::u32string decode(std::string_view valid_text) {
  std::u32string codes;
  codes.reserve(valid_text.size());
  for (size_t pos = 0; pos < valid_text.size();) codes.push_back(next(valid_text, pos));
  return codes;
}

std::string encode(std::u32string_view codes) {
  std::string text;
  text.reserve(codes.size());
  for (char32_t code : codes) append(text, code);
  return text;
}

}  // namespace weft::utf8
