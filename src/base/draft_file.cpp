#include "base/draft_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr size_t kWaiting = 1 << 16;

}  // namespace

DraftFile::DraftFile(fs::path target) : target_(std::move(target)), draft_(target_) {
  std::error_code error;
  if (target_.has_parent_path()) fs::create_directories(target_.parent_path(), error);
  if (error)
    fail(ErrorKind::io, "[io] cannot create {}: {}", target_.parent_path().string(), error.message());
  draft_ += fmt::format(".{}.tmp", gettid());
  file_ = ::open(draft_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail_to_write(errno);
}

DraftFile::~DraftFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(draft_.c_str());
}

void DraftFile::fail_to_write(int error) {
  fail(ErrorKind::io, "[io] cannot write {}: {}", target_.string(), std::strerror(error));
}

void DraftFile::write(std::span<const std::byte> bytes) {
  if (waiting_.size() + bytes.size() <= kWaiting) {
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
    return;
  }
  write_all(waiting_);
  waiting_.clear();
  write_all(bytes);
}

void DraftFile::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void DraftFile::finish() {
  write_all(waiting_);
  const int closed = ::close(std::exchange(file_, -1));  // a file system may first say here that it is full
  const int error = closed != 0 ? errno : ::rename(draft_.c_str(), target_.c_str()) != 0 ? errno : 0;
  if (error == 0) return;
  ::unlink(draft_.c_str());
  fail_to_write(error);
}

}  // namespace weft
