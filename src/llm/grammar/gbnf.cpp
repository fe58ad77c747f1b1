#include "llm/grammar/gbnf.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace weft::gbnf {
namespace {

constexpr int kMaxDepth = 200;   // of groups
constexpr int kMaxRepeats = 10;  // of one thing, as in a*?+

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// Of neighbours first: n log n for n sets.
CodeSet union_of(std::vector<CodeSet> sets) {
  if (sets.empty()) return {};
  for (size_t step = 1; step < sets.size(); step *= 2)
    for (size_t i = 0; i + step < sets.size(); i += 2 * step) sets[i] = sets[i] | sets[i + step];
  return sets.front();
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Rule> rules() {
    for (size_t pos = 0; pos < text_.size();) {
      const size_t length = utf8::valid_length(text_, pos);
      if (length == 0) fail(ErrorKind::invalid, "[grammar] byte {} is not UTF-8", pos);
      pos += length;
    }
    std::vector<Rule> result;
    for (skip_blanks(true); !at_end(); skip_blanks(true)) result.push_back(rule());
    return result;
  }

 private:
  [[noreturn]] void wrong(std::string_view why) const {
    fail(ErrorKind::invalid, "[grammar] line {}: {}", line_, why);
  }

  bool at_end() const { return pos_ == text_.size(); }
  bool looking_at(std::string_view token) const { return text_.substr(pos_).starts_with(token); }
  bool take(std::string_view token) {
    if (!looking_at(token)) return false;
    pos_ += token.size();
    return true;
  }

  /// Spaces and comments, with `lines` also ends of lines.
  void skip_blanks(bool lines) {
    for (; !at_end(); ++pos_) {
      const char c = text_[pos_];
      if (c == '#') {
        pos_ = std::min(text_.find_first_of("\r\n", pos_), text_.size());
        if (at_end() || !lines) return;
      } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
        return;
      }
      if (text_[pos_] == '\n') ++line_;
    }
  }

  std::string name() {
    const size_t begin = pos_;
    while (!at_end() && is_name(text_[pos_])) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  Rule rule() {
    Rule result{.name = name(), .line = line_};
    if (result.name.empty()) wrong("a rule begins with its name");
    skip_blanks(false);
    if (!take("::=")) wrong(fmt::format("::= is missing behind '{}'", result.name));
    skip_blanks(true);
    result.body = choice(false);
    if (!at_end() && text_[pos_] != '\n' && text_[pos_] != '\r' && !begins_rule())
      wrong(looking_at(")") ? "unmatched )" : "this cannot be read");
    return result;
  }

  Node choice(bool nested) {
    if (++depth_ > kMaxDepth) wrong("nested too deeply");
    Node result{.kind = Node::Kind::choice, .line = line_};
    do {
      skip_blanks(true);
      result.parts.push_back(sequence(nested));
    } while (take_bar(nested));
    --depth_;
    if (result.parts.size() > 1) return result;
    Node only = std::move(result.parts.front());
    return only;
  }

  /// A | may also begin the next line.
  bool take_bar(bool nested) {
    const size_t begin = pos_;
    const int line = line_;
    skip_blanks(true);
    if (take("|")) return true;
    if (!nested) pos_ = begin, line_ = line;
    return false;
  }

  Node sequence(bool nested) {
    Node result{.kind = Node::Kind::sequence, .line = line_};
    for (;;) {
      skip_blanks(nested);
      if (at_end()) return result;
      const char c = text_[pos_];
      if (c == '"') {
        result.parts.push_back(literal());
      } else if (c == '[') {
        result.parts.push_back(char_class());
      } else if (c == '(') {
        ++pos_;
        result.parts.push_back(choice(true));
        if (!take(")")) wrong("a ) is missing");
      } else if (c == '.') {
        ++pos_;
        result.parts.push_back({.kind = Node::Kind::set, .line = line_, .set = ~CodeSet()});
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (result.parts.empty()) wrong("nothing to repeat");
        repeat(result.parts.back());
      } else if (is_name(c)) {
        if (result.parts.empty() && !nested && begins_rule()) return result;
        result.parts.push_back({.kind = Node::Kind::rule, .line = line_, .text = name()});
      } else {
        return result;
      }
    }
  }

  /// Where an alternative is empty, the next name may be that of the next rule.
  bool begins_rule() const {
    size_t pos = pos_;
    while (pos < text_.size() && is_name(text_[pos])) ++pos;
    while (pos < text_.size() && (text_[pos] == ' ' || text_[pos] == '\t')) ++pos;
    return text_.substr(pos).starts_with("::=");
  }

  void repeat(Node& node) {
    Node result{.kind = Node::Kind::repeat, .line = line_};
    if (take("?")) {
      result.max = 1;
    } else if (take("+")) {
      result.min = 1;
    } else if (!take("*")) {
      ++pos_;  // {
      skip_blanks(true);
      result.min = number();
      skip_blanks(true);
      if (!take(",")) {
        result.max = result.min;
      } else {
        skip_blanks(true);
        if (!looking_at("}")) result.max = number();
        skip_blanks(true);
      }
      if (!take("}")) wrong("a } is missing");
      if (result.max < result.min) wrong("a repetition ends before it begins");
    }
    repeats_ = node.kind == Node::Kind::repeat ? repeats_ + 1 : 1;
    if (repeats_ > kMaxRepeats) wrong("too many repetitions of repetitions");
    result.parts.push_back(std::move(node));
    node = std::move(result);
  }

  uint32_t number() {
    constexpr uint64_t kMost = 1'000'000'000;
    if (at_end() || text_[pos_] < '0' || text_[pos_] > '9') wrong("a number is missing in { }");
    uint64_t value = 0;
    for (; !at_end() && text_[pos_] >= '0' && text_[pos_] <= '9'; ++pos_)
      value = std::min(value * 10 + static_cast<uint64_t>(text_[pos_] - '0'), kMost);
    return static_cast<uint32_t>(value);
  }

  Node literal() {
    Node result{.kind = Node::Kind::text, .line = line_};
    ++pos_;
    while (!take("\"")) utf8::append(result.text, character("a \" is missing"));
    return result;
  }

  Node char_class() {
    Node result{.kind = Node::Kind::set, .line = line_};
    ++pos_;
    const bool negative = take("^");
    std::vector<CodeSet> sets;
    while (!take("]")) {
      const char32_t first = character("a ] is missing");
      char32_t last = first;
      if (looking_at("-") && !looking_at("-]")) {
        ++pos_;
        last = character("a ] is missing");
        if (last < first) wrong("a range ends before it begins");
      }
      sets.push_back(CodeSet::range(first, last));
    }
    result.set = union_of(std::move(sets));
    if (negative) result.set = ~result.set;
    return result;
  }

  char32_t character(std::string_view missing) {
    if (at_end() || looking_at("\n") || looking_at("\r")) wrong(missing);
    if (!take("\\")) return utf8::next(text_, pos_);
    if (at_end()) wrong(missing);
    switch (const char c = text_[pos_++]) {
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        wrong("unknown escape");
    }
  }

  char32_t hex(int digits) {
    uint64_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const size_t digit =
          at_end() ? std::string_view::npos : std::string_view("0123456789abcdefABCDEF").find(text_[pos_]);
      if (digit == std::string_view::npos)
        wrong(fmt::format("an escape needs {} hexadecimal digits", digits));
      code = code * 16 + (digit > 15 ? digit - 6 : digit);
      ++pos_;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) wrong("an escape is no character");
    return static_cast<char32_t>(code);
  }

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
  int depth_ = 0;
  int repeats_ = 0;  // of the last thing
};

}  // namespace

std::vector<Rule> parse(std::string_view grammar) {
  return Parser(grammar).rules();
}

}  // namespace weft::gbnf
