#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct CommandWords {
  std::string name, help;
  std::vector<std::string> options;  ///< "--json", "--device" ...
};

/// A completion script for bash, zsh or fish. Throws ErrorKind::invalid for another shell.
std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace weft::cli
