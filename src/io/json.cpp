#include "io/json.h"

#include "base/error.h"

namespace weft {

void check_json_depth(std::string_view text, const std::string& where) {
  constexpr int kMost = 100;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      quoted = !quoted;
    else if (quoted)
      i += c == '\\';
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (depth > kMost) fail(ErrorKind::io, "{}: JSON nested deeper than {} levels", where, kMost);
  }
}

}  // namespace weft
