#include "text/regex_parse.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "io/safetensors.h"
#include "text/utf8.h"

namespace weft::regex {
namespace {

constexpr int kMaxDepth = 100;           // of groups and classes
constexpr int kMaxRepeat = 100000;       // Oniguruma's own limit
constexpr size_t kMaxPattern = 1 << 16;  // bytes; a byte may be a class of many ranges

/// Oniguruma's Ruby syntax, which is what tokenizer.json files are written for.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : original_(pattern), text_(utf8::valid(pattern)) {}

  Node pattern() {
    if (original_.size() > kMaxPattern)
      fail(ErrorKind::unsupported, "[regex] '{}' is too large: {} bytes", one_line(original_),
           original_.size());
    Node node = choice();
    if (!at_end()) wrong("unmatched )");
    return node;
  }

 private:
  struct Flags {
    bool any_case = false, dot_all = false, extended = false;
  };

  [[noreturn]] void wrong(std::string_view why) const {
    fail(ErrorKind::invalid, "[regex] '{}': {} at byte {}", one_line(original_), why, pos_);
  }
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorKind::unsupported, "[regex] '{}': {} is not supported", one_line(original_), what);
  }

  bool at_end() const { return pos_ == text_.size(); }
  bool looking_at(std::string_view token) const {
    return std::string_view(text_).substr(pos_).starts_with(token);
  }
  bool take(std::string_view token) {
    if (!looking_at(token)) return false;
    pos_ += token.size();
    return true;
  }
  char32_t next() {
    if (at_end()) wrong("ends too early");
    return utf8::next(text_, pos_);
  }

  Node choice() {
    if (++depth_ > kMaxDepth) wrong("nested too deeply");
    Node result{.kind = Node::Kind::choice};
    do result.parts.push_back(sequence());
    while (take("|"));
    --depth_;
    if (result.parts.size() > 1) return result;
    Node only = std::move(result.parts.front());
    return only;
  }

  Node sequence() {
    Node result{.kind = Node::Kind::sequence};
    for (;;) {
      if (flags_.extended) skip_blanks();
      if (at_end() || looking_at("|") || looking_at(")")) return result;
      if (std::optional<Node> node = item()) result.parts.push_back(quantified(std::move(*node)));
    }
  }

  void skip_blanks() {
    while (!at_end() && (text_[pos_] == '#' || unicode::is_space(static_cast<unsigned char>(text_[pos_])))) {
      if (text_[pos_] == '#')
        while (!at_end() && text_[pos_] != '\n') ++pos_;
      else
        ++pos_;
    }
  }

  /// nullopt for what matches nothing: a comment, a change of flags.
  std::optional<Node> item() {
    if (take("(?#")) {
      while (next() != ')') continue;
      return std::nullopt;
    }
    if (take("(")) return group();
    if (take("[")) return of_set(char_class());
    if (take(".")) return dot();
    if (take("^")) return of_assertion(Assertion::line_begin);
    if (take("$")) return of_assertion(Assertion::line_end);
    if (take("\\")) return escape();
    if (looking_at("*") || looking_at("+") || looking_at("?")) wrong("nothing to repeat");
    return literal(next());
  }

  Node of_set(CodeSet set) const { return {.kind = Node::Kind::set, .set = std::move(set)}; }
  static Node of_assertion(Assertion assertion) {
    return {.kind = Node::Kind::assertion, .assertion = assertion};
  }
  Node dot() const { return of_set(flags_.dot_all ? ~CodeSet() : ~CodeSet::range('\n', '\n')); }
  Node literal(char32_t code) const {
    const CodeSet set = CodeSet::range(code, code);
    return of_set(flags_.any_case ? set.any_case() : set);
  }

  std::optional<Node> group() {
    const Flags outer = flags_;
    Node result{.kind = Node::Kind::sequence};
    if (take("?=") || take("?!")) {
      result.kind = Node::Kind::ahead;
      result.negative = text_[pos_ - 1] == '!';
    } else if (take("?<=") || take("?<!")) {
      result.kind = Node::Kind::behind;
      result.negative = text_[pos_ - 1] == '!';
    } else if (take("?>")) {
      result.kind = Node::Kind::atomic;
    } else if (take("?<") || take("?P<")) {
      while (next() != '>') continue;
    } else if (take("?(") || take("?'") || take("?~") || take("?P") || take("?&")) {
      unsupported("this kind of group");
    } else if (take("?")) {
      if (read_flags()) return std::nullopt;  // until the end of the group around it
    }
    result.parts.push_back(choice());
    if (!take(")")) wrong("a ) is missing");
    flags_ = outer;
    return result;
  }

  /// Of (?i) and (?i:...); true for the first, where there is no group.
  bool read_flags() {
    for (bool on = true;;) switch (next()) {
        case '-':
          on = false;
          break;
        case 'i':
          flags_.any_case = on;
          break;
        case 'm':
        case 's':
          flags_.dot_all = on;
          break;
        case 'x':
          flags_.extended = on;
          break;
        case ':':
          return false;
        case ')':
          return true;
        default:
          wrong("unknown option of a group");
      }
  }

  Node quantified(Node node) {
    for (int stacked = 0;; ++stacked) {
      if (flags_.extended) skip_blanks();
      if (stacked == kMaxDepth) wrong("nested too deeply");
      int min = 0, max = Node::kNoLimit;
      bool interval = false;
      if (take("?")) {
        max = 1;
      } else if (take("+")) {
        min = 1;
      } else if (!take("*")) {
        interval = take_interval(min, max);
        if (!interval) return node;
      }
      Node repeat{.kind = Node::Kind::repeat, .min = min, .max = max};
      repeat.lazy = take("?");
      const bool possessive =
          !interval && !repeat.lazy && take("+");  // after {n,m} a + is one more repetition
      repeat.parts.push_back(std::move(node));
      node = std::move(repeat);
      if (possessive) {
        Node atomic{.kind = Node::Kind::atomic};
        atomic.parts.push_back(std::move(node));
        node = std::move(atomic);
      }
    }
  }

  /// {n}, {n,}, {n,m}, {,m}; anything else is a brace.
  bool take_interval(int& min, int& max) {
    const size_t begin = pos_;
    if (!take("{")) return false;
    const std::optional<int> low = number();
    std::optional<int> high = low;
    const bool comma = take(",");
    if (comma) high = number();
    if (!take("}") || (!low && !high)) {
      pos_ = begin;
      return false;
    }
    min = low.value_or(0);
    max = high.value_or(Node::kNoLimit);
    if (max != Node::kNoLimit && max < min) wrong("a repetition ends before it begins");
    return true;
  }

  std::optional<int> number() {
    std::optional<int> value;
    while (!at_end() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      value = value.value_or(0) * 10 + (text_[pos_++] - '0');
      if (*value > kMaxRepeat) wrong("too many repetitions");
    }
    return value;
  }

  Node escape() {
    const size_t begin = pos_;
    switch (next()) {
      case 'A':
        return of_assertion(Assertion::text_begin);
      case 'z':
        return of_assertion(Assertion::text_end);
      case 'Z':
        return of_assertion(Assertion::text_end_or_newline);
      case 'b':
        return of_assertion(Assertion::word_edge);
      case 'B':
        return of_assertion(Assertion::no_word_edge);
      case 'R':
        return line_break();
      case 'N':
        return of_set(~CodeSet::range('\n', '\n'));
      case 'O':
        return of_set(~CodeSet());
      case 'w':
        return of_set(CodeSet::words_alone());
      case 'W':
        return of_set(~CodeSet::words_alone());
      case 'K':
      case 'X':
      case 'G':
      case 'k':
      case 'g':
        unsupported("\\" + text_.substr(begin, 1));
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
      case '8':
      case '9':
        unsupported("a back reference");
      default:
        break;
    }
    pos_ = begin;
    CodeSet set;
    if (class_escape(set)) return of_set(flags_.any_case ? set.any_case() : set);
    return literal(code_escape());
  }

  Node line_break() const {
    Node pair{.kind = Node::Kind::sequence};
    pair.parts = {of_set(CodeSet::range('\r', '\r')), of_set(CodeSet::range('\n', '\n'))};
    Node result{.kind = Node::Kind::choice};
    result.parts = {std::move(pair), of_set(CodeSet::range('\n', '\r') | CodeSet::range(0x85, 0x85) |
                                            CodeSet::range(0x2028, 0x2029))};
    return result;
  }

  /// \d, \p{L} and the like, behind the backslash; false (and nothing read) for an escaped character.
  bool class_escape(CodeSet& set) {
    const size_t begin = pos_;
    const char32_t kind = next();
    const auto digits = [] { return CodeSet::of_categories(unicode::kDigit); };
    const auto hex = [] {
      return CodeSet::range('0', '9') | CodeSet::range('a', 'f') | CodeSet::range('A', 'F');
    };
    switch (kind) {
      case 'd':
        set = digits();
        return true;
      case 'D':
        set = ~digits();
        return true;
      case 's':
        set = CodeSet::spaces();
        return true;
      case 'S':
        set = ~CodeSet::spaces();
        return true;
      case 'w':
        set = CodeSet::words();
        return true;
      case 'W':
        set = ~CodeSet::words();
        return true;
      case 'h':
        set = hex();
        return true;
      case 'H':
        set = ~hex();
        return true;
      case 'p':
      case 'P':
        set = property(kind == 'P');
        return true;
      default:
        pos_ = begin;
        return false;
    }
  }

  CodeSet property(bool negative) {
    std::string name;
    if (take("{")) {
      if (take("^")) negative = !negative;
      for (char32_t code = next(); code != '}'; code = next()) utf8::append(name, code);
    } else {
      utf8::append(name, next());  // \pL
    }
    CodeSet set;
    if (!CodeSet::named(name, set)) unsupported("the property " + one_line(name));
    return negative ? ~set : set;
  }

  /// The character that an escape stands for, behind the backslash.
  char32_t code_escape() {
    switch (const char32_t code = next()) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1B;
      case '0':
        return 0;
      case 'x':
        return take("{") ? hex_code(8, true) : hex_code(2, false);
      case 'u':
        return take("{") ? hex_code(8, true) : hex_code(4, false);
      default:
        return code;
    }
  }

  char32_t hex_code(int digits, bool braced) {
    char32_t code = 0;
    int count = 0;
    for (; count < digits && !at_end(); ++count) {
      const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(text_[pos_] | 0x20));
      if (digit == std::string_view::npos || text_[pos_] < '0') break;
      code = code * 16 + static_cast<char32_t>(digit);
      ++pos_;
    }
    if (count == 0 || code > 0x10FFFF || (braced && !take("}"))) wrong("not a code of a character");
    return code;
  }

  /// Behind the [. && binds weaker than everything beside it, ^ weaker than that.
  CodeSet char_class() {
    if (++depth_ > kMaxDepth) wrong("nested too deeply");
    const bool negative = take("^");
    const auto cased = [&](const CodeSet& set) { return flags_.any_case ? set.any_case() : set; };
    CodeSet all = ~CodeSet();
    CodeSet::Union part;
    for (bool first = true; first || !looking_at("]"); first = false) {
      if (take("&&")) {
        all = all & cased(part.take());
      } else {
        part.add(class_item());
      }
    }
    ++pos_;
    --depth_;
    all = all & cased(part.take());
    return negative ? ~all : all;
  }

  CodeSet class_item() {
    if (take("[:")) {
      const size_t end = text_.find(":]", pos_);
      if (end == std::string::npos) wrong("a :] is missing");
      const bool negative = take("^");
      const std::string name = text_.substr(pos_, end - pos_);
      pos_ = end + 2;
      CodeSet set;
      if (!CodeSet::named(name, set)) unsupported("the class " + one_line(name));
      return negative ? ~set : set;
    }
    if (take("[")) return char_class();
    CodeSet set;
    if (take("\\")) {
      if (class_escape(set)) return set;
      return class_range(text_[pos_] == 'b' ? (++pos_, U'\b') : code_escape());
    }
    return class_range(next());
  }

  /// From a character on: itself, or a range when - and another one follow.
  CodeSet class_range(char32_t first) {
    if (!looking_at("-") || std::string_view(text_).substr(pos_).starts_with("-]"))
      return CodeSet::range(first, first);
    const size_t dash = pos_++;
    char32_t last = 0;
    if (take("\\")) {
      CodeSet set;
      if (class_escape(set)) return CodeSet::range(first, first) | CodeSet::range('-', '-') | set;
      last = code_escape();
    } else if (looking_at("[")) {
      pos_ = dash + 1;
      return CodeSet::range(first, first) | CodeSet::range('-', '-');
    } else {
      last = next();
    }
    if (last < first) wrong("a range ends before it begins");
    return CodeSet::range(first, last);
  }

  std::string original_, text_;
  size_t pos_ = 0;
  int depth_ = 0;
  Flags flags_;
};

}  // namespace

Node parse(std::string_view pattern) {
  return Parser(pattern).pattern();
}

}  // namespace weft::regex
