#include "base/quiet.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

namespace weft {

QuietStandardError::QuietStandardError() {
  if (log_level() >= LogLevel::debug) return;
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return;
  saved_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  if (saved_ >= 0) dup2(null, STDERR_FILENO);
  close(null);
}

QuietStandardError::~QuietStandardError() {
  if (saved_ < 0) return;
  dup2(saved_, STDERR_FILENO);
  close(saved_);
}

}  // namespace weft
