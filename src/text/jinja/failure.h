#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace weft::jinja {

/// What is wrong with a template, or went wrong in it.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& what, int line = 0) : std::runtime_error(what), line_(line) {}
  int line() const { return line_; }  ///< 0: the one who catches it knows better

 private:
  int line_;
};

template <typename... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft::jinja
