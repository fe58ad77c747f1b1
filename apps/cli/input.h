#pragma once

#include <functional>
#include <string>
#include <string_view>

/// Standard input of a command, whose name is where messages begin. Throws ErrorKind::io when it cannot be
/// read: a folder is no empty text.
namespace weft::cli {

std::string read_input(std::string_view command);

/// One JSON string per line. An empty line is an error, but at the end, where editors and shells leave some.
void for_each_text(std::string_view command, const std::function<void(const std::string&)>& take);

/// After the last line was read: was it the end?
void check_input(std::string_view command);

}  // namespace weft::cli
