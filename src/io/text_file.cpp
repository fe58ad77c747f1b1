#include "io/text_file.h"

#include "base/error.h"
#include "io/mapped_file.h"

namespace weft {

std::string read_text_file(const std::filesystem::path& file) {
  constexpr size_t kMost = 256 << 20;
  const MappedFile mapping(file);
  const auto bytes = mapping.bytes();
  if (bytes.size() > kMost)
    fail(ErrorKind::io, "[io] {}: a text of {} bytes; at most {}", file.string(), bytes.size(), kMost);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace weft
