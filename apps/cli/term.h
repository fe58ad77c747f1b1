#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

/// What depends on whether a person or a program reads the output.
namespace weft::term {

/// True on a terminal, unless NO_COLOR is set or TERM is dumb.
bool colours(std::FILE* stream);

enum class Style { bold, dim, red, green, yellow };
std::string styled(std::string_view text, Style style, bool colour);

/// Columns as wide as their widest cell, two spaces between them.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// The header is bold on a terminal.
  std::string text(bool colour) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "2.0 GiB", "128 MiB".
std::string bytes(unsigned long long count);

}  // namespace weft::term
