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
  const bool fence = run == "```" && line_start_;
  if (!run.empty() && run.front() != '#') line_start_ = false;
  if (fence && (state_ == State::plain || state_ == State::fence)) {
    const bool opens = state_ == State::plain;
    if (opens) enter(State::fence, out);
    out += run;
    if (!opens) enter(State::plain, out);
  } else if (run == "`" && (state_ == State::plain || state_ == State::code)) {
    const bool opens = state_ == State::plain;
    if (opens) enter(State::code, out);
    out += run;
    if (!opens) enter(State::plain, out);
  } else if (run == "**" && (state_ == State::plain || state_ == State::bold)) {
    const bool opens = state_ == State::plain;
    if (opens) enter(State::bold, out);
    out += run;
    if (!opens) enter(State::plain, out);
  } else if (!run.empty() && run.front() == '#' && line_start_ && state_ == State::plain) {
    enter(State::heading, out);
    out += run;
    line_start_ = false;
  } else {
    out += run;
    line_start_ = false;
  }
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
