#pragma once

namespace weft {

/// Drops what libraries write to standard error while it lives; nothing is dropped with WEFT_LOG=debug. Only
/// around short calls into libraries that cannot be silenced otherwise: it is the whole process that falls
/// silent.
class QuietStandardError {
 public:
  QuietStandardError();
  ~QuietStandardError();
  QuietStandardError(const QuietStandardError&) = delete;
  QuietStandardError& operator=(const QuietStandardError&) = delete;

 private:
  int saved_ = -1;  // the real standard error; -1 = untouched
};

}  // namespace weft
