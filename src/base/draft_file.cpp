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
constexpr int kMostLinks = 40;  // one behind the other, as Linux has it

}  // namespace

fs::path writable_target(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::none)
    fail(ErrorKind::io, "[io] cannot write {}: {}", file.string(), error.message());
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail(ErrorKind::io, "[io] cannot write {}: it is not a regular file", file.string());
  fs::path target = file;  // a link may also lead to a file that is still to be made
  for (int links = 0; links < kMostLinks && fs::is_symlink(fs::symlink_status(target, error)); ++links)
    target = target.parent_path() / fs::read_symlink(target, error);
  if (const fs::path folder = target.parent_path(); !folder.empty() && !fs::is_directory(folder, error))
    fail(ErrorKind::io, "[io] cannot write {}: there is no folder {}", file.string(), folder.string());
  return target;
}

DraftFile::DraftFile(const fs::path& target) : target_(writable_target(target)), draft_(target_) {
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
