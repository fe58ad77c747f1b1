#include "text/jinja/text.h"

#include <algorithm>

#include "text/utf8.h"

namespace weft::jinja {

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().trusted == trusted)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), trusted});
}

void Text::append(const Text& other, size_t begin, size_t end) {
  auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), run->trusted);
    begin = stop;
  }
}

Text Text::part(size_t begin, size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

size_t Text::next(std::string_view bytes, size_t begin) {
  return utf8::next_position(bytes, begin);
}

size_t character_count(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < text.size()) at = utf8::next_position(text, at);
  return at;
}

}  // namespace weft::jinja
