#include "base/standard_error.h"

#include <cstdio>

namespace weft {

void to_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace weft
