#include "text/find.h"

#include <string.h>  // memmem

#include <string>

namespace weft {

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // glibc's searches with two-way: linear, and without memory of its own.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

size_t rfind_text(std::string_view text, std::string_view wanted) {
  const std::string turned(text.rbegin(), text.rend()), mark(wanted.rbegin(), wanted.rend());
  const size_t found = find_text(turned, mark);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

}  // namespace weft
