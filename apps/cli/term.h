#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

/// What depends on whether a person or a program reads the output.
namespace weft::term {

/// True on a terminal, unless NO_COLOR is set or TERM is dumb.
bool colours(std::FILE* stream);

/// What was printed is with its reader afterwards. Throws std::system_error where it cannot be: no Error,
/// which ends one line of a conversation, since nothing that comes later would be read either.
void flush();

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

/// One line on standard error that is drawn over and over; nothing where that is no terminal.
class Progress {
 public:
  /// `total` in bytes; 0 while it is not known.
  explicit Progress(unsigned long long total = 0);
  ~Progress();  ///< takes the line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_total(unsigned long long total) { total_ = total; }
  void show(unsigned long long done, std::string_view what);

 private:
  unsigned long long total_;
  bool terminal_;
  std::chrono::steady_clock::time_point drawn_{};
};

/// "2.0 GiB", "128 MiB".
std::string bytes(unsigned long long count);

}  // namespace weft::term
