#include "input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "io/json.h"

namespace weft::cli {

void check_input(std::string_view command) {
  if (std::ferror(stdin))  // which std::cin takes for the end
    fail(ErrorKind::io, "[{}] cannot read standard input: {}", command, std::strerror(errno));
}

std::string read_input(std::string_view command) {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  check_input(command);
  return text;
}

void for_each_text(std::string_view command, const std::function<void(const std::string&)>& take) {
  size_t number = 0, empty = 0;  // the first empty line, which may be the end
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      if (empty == 0) empty = number;
      continue;
    }
    if (empty != 0) fail(ErrorKind::io, "[{}] line {} of the input is empty", command, empty);
    const nlohmann::json value = parse_json(line, fmt::format("[{}] line {} of the input", command, number));
    if (!value.is_string())
      fail(ErrorKind::io, "[{}] line {} of the input is not a JSON string", command, number);
    take(value.get<std::string>());
  }
  check_input(command);
}

}  // namespace weft::cli
