#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

/// State of the process or the disk that a test changes, and that is as before when it ends.
namespace weft::test {

/// An environment variable; nullptr unsets it.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    value ? setenv(name_.c_str(), value, 1) : unsetenv(name_.c_str());
  }
  ~ScopedVariable() { old_ ? setenv(name_.c_str(), old_->c_str(), 1) : unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> old_;
};

/// An empty folder.
struct ScopedFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("weft-folder-{}", getpid());
  ScopedFolder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~ScopedFolder() { std::filesystem::remove_all(path); }
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;
};

}  // namespace weft::test
