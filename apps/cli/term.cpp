#include "term.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/standard_error.h"

namespace weft::term {
namespace {

constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr size_t kBarWidth = 30;

/// Characters of UTF-8 text: what a terminal shows, for the names that occur here.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

bool colours(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fileno(stream)) && !(no_colour && *no_colour) && !(term && std::string_view(term) == "dumb");
}

void flush() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw std::system_error(errno == 0 ? EIO : errno, std::generic_category(),
                            "cannot write to standard output");
}

std::string styled(std::string_view text, Style style, bool colour) {
  static constexpr const char* kCodes[] = {"1", "2", "31", "32", "33"};
  return colour ? fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<int>(style)], text) : std::string(text);
}

std::string Table::text(bool colour) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], width(row[i]));
    }
  std::string result;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      line += rows_[r][i];
      if (i + 1 < rows_[r].size()) line.append(widths[i] - width(rows_[r][i]) + 2, ' ');
    }
    result += (r == 0 ? styled(line, Style::bold, colour) : line) + '\n';
  }
  return result;
}

Progress::Progress(unsigned long long total) : total_(total), terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (terminal_) to_stderr("\r\033[K");
}

void Progress::show(unsigned long long done, std::string_view what) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - drawn_ < kDrawEvery) return;
  drawn_ = now;
  std::string bar;
  if (total_ > 0) {
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
    const auto full = static_cast<size_t>(part * kBarWidth);
    bar = fmt::format("{}{} {:3.0f} %  ", std::string(full, '#'), std::string(kBarWidth - full, '.'),
                      part * 100);
  }
  to_stderr("\r\033[K{}{}  {:.40}", bar, bytes(done), what);
}

std::string bytes(unsigned long long count) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return value < 10 && unit > 0 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                                : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

}  // namespace weft::term
