#include "models/line_reader.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <iostream>

#include "base/standard_error.h"

namespace weft::cli {
namespace {

/// The terminal gives every key at once while one of these exists.
class RawMode {
 public:
  RawMode() {
    active_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (active_) tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawMode() {
    if (active_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  termios before_{};
  bool active_ = false;
};

constexpr char kCtrlA = 1, kCtrlC = 3, kCtrlD = 4, kCtrlE = 5, kBackspace = 8, kCtrlK = 11, kEnter = 13,
               kCtrlU = 21, kCtrlW = 23, kEscape = 27, kDelete = 127;

bool continues(char byte) {  // inside of a character of several bytes
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

/// A line being edited: the place is between two characters.
struct Edit {
  std::string text;
  size_t at = 0;

  void left() {
    if (at > 0) --at;
    while (at > 0 && continues(text[at])) --at;
  }
  void right() {
    if (at < text.size()) ++at;
    while (at < text.size() && continues(text[at])) ++at;
  }
  void erase_left() {
    const size_t end = at;
    left();
    text.erase(at, end - at);
  }
  void erase_word() {
    const size_t end = at;
    while (at > 0 && text[at - 1] == ' ') --at;
    while (at > 0 && text[at - 1] != ' ') --at;
    text.erase(at, end - at);
  }
  void set(const std::string& other) { text = other, at = other.size(); }
};

size_t characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += !continues(c);
  return count;
}

bool read_byte(char& byte) {
  return ::read(STDIN_FILENO, &byte, 1) == 1;
}

}  // namespace

std::optional<std::string> LineReader::edited(const std::string& prompt) {
  const RawMode raw;
  Edit edit;
  size_t back = 0;  // lines back in the history
  const auto draw = [&] {
    const size_t behind = characters(std::string_view(edit.text).substr(edit.at));
    to_stderr("\r\x1b[K{}{}", prompt, edit.text);
    if (behind > 0) to_stderr("\x1b[{}D", behind);
  };
  const auto recall = [&](size_t lines) {
    if (lines > history_.size()) return;
    back = lines;
    edit.set(back == 0 ? "" : history_[history_.size() - back]);
  };
  for (;;) {
    draw();
    char key = 0;
    if (!read_byte(key)) return std::nullopt;
    if (key == kEnter || key == '\n') {
      to_stderr("\n");
      return edit.text;
    }
    if (key == kCtrlD && edit.text.empty()) {
      to_stderr("\n");
      return std::nullopt;
    }
    if (key == kCtrlC) {
      to_stderr("\n");
      edit.set("");
    } else if (key == kDelete || key == kBackspace) {
      edit.erase_left();
    } else if (key == kCtrlA) {
      edit.at = 0;
    } else if (key == kCtrlE) {
      edit.at = edit.text.size();
    } else if (key == kCtrlK) {
      edit.text.resize(edit.at);
    } else if (key == kCtrlU) {
      edit.text.erase(0, edit.at), edit.at = 0;
    } else if (key == kCtrlW) {
      edit.erase_word();
    } else if (key == kEscape) {
      char first = 0, second = 0;
      if (!read_byte(first) || (first != '[' && first != 'O') || !read_byte(second)) continue;
      if (second == 'A') recall(back + 1);
      if (second == 'B' && back > 0) recall(back - 1);
      if (second == 'C') edit.right();
      if (second == 'D') edit.left();
      if (second == 'H') edit.at = 0;
      if (second == 'F') edit.at = edit.text.size();
      if (second == '3' && read_byte(first) && edit.at < edit.text.size()) edit.right(), edit.erase_left();
    } else if (static_cast<unsigned char>(key) >= ' ') {
      edit.text.insert(edit.at++, 1, key);
    }
  }
}

std::optional<std::string> LineReader::line(const std::string& prompt) {
  if (terminal_) return edited(prompt);
  std::string text;
  if (!std::getline(std::cin, text)) return std::nullopt;
  return text;
}

std::optional<std::string> LineReader::read(const std::string& prompt) {
  constexpr std::string_view kQuotes = "\"\"\"";
  std::optional<std::string> text = line(prompt);
  if (!text) return std::nullopt;
  if (text->starts_with(kQuotes)) {
    text->erase(0, kQuotes.size());
    while (!text->ends_with(kQuotes)) {
      const std::optional<std::string> next = line(". ");
      if (!next) return text;
      *text += (text->empty() ? "" : "\n") + *next;
    }
    text->resize(text->size() - kQuotes.size());
  }
  while (text->ends_with('\\')) {
    text->back() = '\n';
    const std::optional<std::string> next = line(". ");
    if (!next) break;
    *text += *next;
  }
  if (!text->empty() && (history_.empty() || history_.back() != *text)) history_.push_back(*text);
  return text;
}

}  // namespace weft::cli
