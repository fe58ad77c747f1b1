#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace weft {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

std::string last_error() {
  return std::generic_category().message(errno);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  // Without O_NONBLOCK a named pipe would wait here for a writer.
  const Descriptor opened{open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (opened.number < 0) fail(ErrorKind::io, "[io] cannot open {}: {}", file.string(), last_error());
  struct stat status{};
  if (fstat(opened.number, &status) != 0)
    fail(ErrorKind::io, "[io] cannot open {}: {}", file.string(), last_error());
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::io, "[io] cannot open {}: not a regular file", file.string());
  if (status.st_size == 0) return;  // mmap refuses a length of 0
  const auto size = static_cast<size_t>(status.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.number, 0);
  if (start == MAP_FAILED) fail(ErrorKind::io, "[io] cannot map {}: {}", file.string(), last_error());
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace weft
