#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

/// What a caller can do about an error: the message is for people, the kind is for programs.
enum class ErrorKind {
  invalid,      ///< the caller's mistake: arguments, shapes, a bad kernel source
  unsupported,  ///< right request, wrong device or library
  memory,       ///< out of device or host memory; smaller work may succeed
  lost,         ///< the device is gone; create another one or continue on the CPU
  timeout,      ///< a wait passed its deadline; the device is not to be trusted any more
  io,           ///< files and directories
};

/// The one exception type of weft. Messages start with where: `[matmul] inner dimensions differ: ...`.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace weft
