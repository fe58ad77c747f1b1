#include "text/jinja/lexer.h"

#include <algorithm>

#include "text/jinja/failure.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

using Type = Token::Type;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// One kind of line end, and none at the very end.
std::string normalized(std::string_view source) {
  std::string result;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      const std::string_view begin = std::string_view(source_).substr(tag, 2);
      if (begin == "{{")
        variable(tag);
      else if (begin == "{#")
        comment(tag);
      else if (begin == "{%")
        block(tag);
      else
        data(source_.size());
    }
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const { throw Failure(what, line_); }

  char peek(size_t offset = 0) const { return at_ + offset < source_.size() ? source_[at_ + offset] : '\0'; }
  bool looking_at(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }

  void add(Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  size_t find_tag() const {
    for (size_t at = source_.find('{', at_); at != source_.npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && std::string_view("{#%").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return source_.size();
  }

  size_t skip_spaces(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!unicode::is_space(utf8::next(source_, next))) break;
      at = next;
    }
    return at;
  }

  /// Text up to `end`, without the space before a tag that the tag's sign or the rules take away.
  void data(size_t end, char sign = '+') {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    const auto without_spaces = [&](size_t from) {
      size_t stop = text.size();
      while (stop > from) {
        size_t before = stop;
        if (!unicode::is_space(utf8::previous(text, before))) break;
        stop = before;
      }
      return stop;
    };
    if (sign == '-') {
      text = text.substr(0, without_spaces(0));
    } else if (sign != '+') {
      const size_t line = text.rfind('\n') + 1;  // 0 when there is none
      const bool at_line_start = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (at_line_start && without_spaces(line) == line) text = text.substr(0, line);
    }
    if (!text.empty()) add(Type::data, std::string(text));
    advance_to(end);
  }

  /// Text before the tag at `tag`, and its "{%" with the sign behind. `keep`: the sign where none is written.
  void open(size_t tag, char keep) {
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool is_signed = sign == '-' || sign == '+';
    data(tag, is_signed ? sign : keep);
    advance_to(at_ + (is_signed ? 3 : 2));
  }

  /// Behind a tag that ended at `end`, with '-' or '+' before it, or neither.
  void close(size_t end, char sign, bool trim) {
    if (sign == '-')
      end = skip_spaces(end);
    else if (sign != '+' && trim && end < source_.size() && source_[end] == '\n')
      ++end;
    advance_to(end);
  }

  void comment(size_t tag) {
    open(tag, '\0');
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) wrong("a comment is not closed");
    close(end + 2, end > at_ ? source_[end - 1] : '\0', true);
  }

  void variable(size_t tag) {
    open(tag, '+');
    add(Type::variable_begin, "{{");
    expression("}}", Type::variable_end, false);
  }

  void block(size_t tag) {
    open(tag, '\0');
    if (raw()) return;
    add(Type::block_begin, "{%");
    expression("%}", Type::block_end, true);
  }

  /// The length of "  raw -%}" at `at`, 0 when it is not there; `sign` is what stands before "%}".
  size_t named_end(size_t at, std::string_view name, bool plus, char& sign) const {
    const size_t begin = at;
    at = skip_spaces(at);
    if (!std::string_view(source_).substr(at).starts_with(name)) return 0;
    at = skip_spaces(at + name.size());
    sign = at < source_.size() ? source_[at] : '\0';
    if (sign == '-' || (plus && sign == '+')) ++at;
    return std::string_view(source_).substr(at).starts_with("%}") ? at + 2 - begin : 0;
  }

  bool raw() {
    char sign = '\0';
    const size_t length = named_end(at_, "raw", false, sign);
    if (length == 0) return false;
    close(at_ + length, sign, false);
    for (size_t tag = source_.find("{%", at_); tag != source_.npos; tag = source_.find("{%", tag + 2)) {
      size_t name = tag + 2;
      if (name < source_.size() && (source_[name] == '-' || source_[name] == '+')) ++name;
      const size_t rest = named_end(name, "endraw", true, sign);
      if (rest == 0) continue;
      open(tag, '\0');
      close(at_ + rest, sign, true);
      return true;
    }
    wrong("a raw block is not closed");
  }

  /// Tokens up to the end of the tag: one inside brackets does not count.
  void expression(std::string_view end, Type end_type, bool trim) {
    std::string open_brackets;
    while (true) {
      advance_to(skip_spaces(at_));
      if (at_ >= source_.size()) wrong(fmt::format("a tag is not closed: '{}' is missing", end));
      if (open_brackets.empty()) {
        const char sign = peek() == '-' || (trim && peek() == '+') ? peek() : '\0';
        if (std::string_view(source_).substr(at_ + (sign ? 1 : 0)).starts_with(end)) {
          add(end_type, std::string(end));
          close(at_ + (sign ? 1 : 0) + end.size(), sign, trim);
          return;
        }
      }
      token(open_brackets);
    }
  }

  void token(std::string& open_brackets) {
    const char c = peek();
    size_t next = at_;
    const char32_t code = utf8::next(source_, next);
    if (is_digit(c))
      number();
    else if (c == '_' || unicode::is_letter(code))
      name();
    else if (c == '"' || c == '\'')
      string(c);
    else
      symbol(open_brackets);
  }

  void name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t code = utf8::next(source_, next);
      if (code != '_' && !unicode::is_letter(code) && !unicode::is_number(code) && !unicode::is_mark(code))
        break;
      end = next;
    }
    add(Type::name, source_.substr(at_, end - at_));
    at_ = end;
  }

  size_t digits(size_t at) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                             is_digit(source_[at + 1]))))
      ++at;
    return at;
  }

  void number() {
    const size_t begin = at_;
    size_t end = digits(begin);
    bool real = false;
    if (peek() == '0' && end == begin + 1 && end < source_.size() &&
        std::string_view("xXoObB").find(source_[end]) != std::string_view::npos) {
      ++end;
      while (end < source_.size() &&
             (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_'))
        ++end;
    } else {
      const bool member = begin > 0 && source_[begin - 1] == '.';  // x.0.1 has no fraction
      const auto fraction = [&](size_t at) {
        return at + 1 < source_.size() && source_[at] == '.' && is_digit(source_[at + 1]);
      };
      if (!member && fraction(end)) {
        end = digits(end + 1);
        real = true;
      }
      if (!member && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          end = digits(exponent);
          real = true;
        }
      }
    }
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    add(real ? Type::real : Type::integer, std::move(text));
    at_ = end;
  }

  void string(char quote) {
    std::string text;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      if (source_[end] == '\\')
        end = escape(end + 1, text);
      else
        text += source_[end++];
    }
    if (end >= source_.size()) wrong("a string is not closed");
    add(Type::string, std::move(text));
    advance_to(end + 1);
  }

  /// The escape behind a backslash at `at`; what is none stays as it is written.
  size_t escape(size_t at, std::string& text) const {
    if (at >= source_.size()) return at;
    const char c = source_[at];
    constexpr std::string_view kNames = "abfnrtv\\'\"", kBytes = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t place = kNames.find(c); place != kNames.npos) {
      text += kBytes[place];
      return at + 1;
    }
    if (c == '\n') return at + 1;
    size_t begin = at + 1, count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    int base = 16;
    if (c >= '0' && c <= '7') {
      begin = at;
      base = 8;
      while (count < 3 && at + count < source_.size() && source_[at + count] >= '0' &&
             source_[at + count] <= '7')
        ++count;
    }
    if (count == 0) {
      text += '\\';
      return at;
    }
    const std::string code = source_.substr(begin, count);
    const bool complete =
        code.size() == count && std::ranges::all_of(code, [](unsigned char x) { return std::isxdigit(x); });
    const unsigned long number = complete ? std::stoul(code, nullptr, base) : 0x110000;
    if (number > 0x10FFFF || (number >= 0xD800 && number < 0xE000))
      wrong("an escape in a string is no character");
    utf8::append(text, static_cast<char32_t>(number));
    return begin + count;
  }

  void symbol(std::string& open_brackets) {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    size_t length = 1;
    for (std::string_view pair : kPairs)
      if (looking_at(pair)) length = 2;
    const char c = peek();
    if (length == 1 && kSingles.find(c) == kSingles.npos) {
      const size_t end = utf8::next_position(source_, at_);
      wrong(fmt::format("unexpected character '{}'", source_.substr(at_, end - at_)));
    }
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(c) != kOpening.npos) open_brackets += c;
    if (const size_t kind = kClosing.find(c); kind != kClosing.npos) {
      if (open_brackets.empty() || open_brackets.back() != kOpening[kind])
        wrong(fmt::format("unexpected '{}'", c));
      open_brackets.pop_back();
    }
    add(Type::symbol, source_.substr(at_, length));
    at_ += length;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace weft::jinja
