#include "models/markdown.h"

#include <utility>

namespace weft::cli {
namespace {

constexpr std::string_view kReset = "\x1b[0m", kBold = "\x1b[1m", kHeading = "\x1b[1;36m", kCode = "\x1b[33m";

}  // namespace

void Markdown::enter(State state, std::string& out) {
  state_ = state;
  out += state == State::plain     ? kReset
         : state == State::bold    ? kBold
         : state == State::heading ? kHeading
                                   : kCode;
}

void Markdown::mark(std::string& out) {
  const std::string run = std::exchange(run_, "");
  if (run.empty()) return;
  const bool first = std::exchange(line_start_, false);
  if (run.front() == '#' && first && state_ == State::plain) {
    enter(State::heading, out);
    out += run;
    return;
  }
  // What is in a pair of these marks.
  const State inside = run == "```" && first ? State::fence
                       : run == "`"          ? State::code
                       : run == "**"         ? State::bold
                                             : State::plain;
  const bool opens = inside != State::plain && state_ == State::plain, closes = !opens && state_ == inside;
  if (opens) enter(inside, out);
  out += run;
  if (closes && inside != State::plain) enter(State::plain, out);
}

std::string Markdown::push(std::string_view text) {
  if (!colour_) return std::string(text);
  std::string out;
  for (const char c : text) {
    const bool is_mark = c == '`' || c == '*' || (c == '#' && (line_start_ || !run_.empty()));
    if (!run_.empty() && run_.front() != c) mark(out);
    if (is_mark) {
      run_ += c;
      continue;
    }
    if (c == '\n') {
      if (state_ == State::heading) enter(State::plain, out);
      line_start_ = true;
    } else if (c != ' ') {
      line_start_ = false;
    }
    out += c;
  }
  return out;
}

std::string Markdown::finish() {
  if (!colour_) return "";
  std::string out;
  mark(out);
  enter(State::plain, out);
  return out;
}

}  // namespace weft::cli
