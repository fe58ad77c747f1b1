#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "text/jinja/library.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

/// How one value is to be written: "%-08.3f" and "{:<+8,.3f}" say the same things.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =, or the type's own
  char sign = '-';    // '+' or ' ': positive numbers get it
  bool alternative = false, thousands = false;
  int64_t width = 0;
  int precision = -1;
  char type = 's';
};

constexpr int kMaxPrecision = 1000;

/// A number at `at`, which moves behind it; `otherwise` when there is none.
int64_t read_number(std::string_view text, size_t& at, int64_t otherwise) {
  int64_t number = otherwise;
  const auto read = std::from_chars(text.data() + at, text.data() + text.size(), number);
  if (read.ec == std::errc::result_out_of_range) wrong("a width in a format is too large");
  at = static_cast<size_t>(read.ptr - text.data());
  return number;
}

void set_precision(Spec& spec, int64_t precision) {
  if (precision < 0 || precision > kMaxPrecision) wrong("a precision in a format is too large");
  spec.precision = static_cast<int>(precision);
}

Text placed(Budget& budget, const Text& text, const Spec& spec, char own_align) {
  const char align = spec.align ? spec.align : own_align;
  const Side side = align == '<' ? Side::left : align == '^' ? Side::both : Side::right;
  if (side != Side::both) return pad(budget, text, spec.width, spec.fill, side);
  const int64_t missing = spec.width - static_cast<int64_t>(character_count(text.bytes()));
  // Here the odd one goes to the right.
  const Text with_left =
      pad(budget, text, spec.width - std::max<int64_t>(missing - missing / 2, 0), spec.fill, Side::right);
  return pad(budget, with_left, spec.width, spec.fill, Side::left);
}

void add_thousands(std::string& digits) {
  const size_t end = std::min(digits.find_first_of(".e"), digits.size());
  for (size_t at = end; at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
}

Text number_text(Budget& budget, const Spec& spec, bool negative, std::string_view prefix,
                 std::string digits) {
  if (spec.thousands) add_thousands(digits);
  std::string head = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  head += prefix;
  Text text(head, true);
  if (spec.align == '=')  // zeros between the sign and the digits
    text.append(pad(budget, Text(digits, true), spec.width - static_cast<int64_t>(head.size()), spec.fill,
                    Side::right));
  else
    text.append(digits, true);
  return placed(budget, text, spec, '>');
}

Text format_whole(Budget& budget, const Spec& spec, int64_t number) {
  const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const char* prefix = !spec.alternative  ? ""
                       : spec.type == 'x' ? "0x"
                       : spec.type == 'X' ? "0X"
                       : spec.type == 'o' ? "0o"
                       : spec.type == 'b' ? "0b"
                                          : "";
  std::string digits = spec.type == 'x'   ? fmt::format("{:x}", size)
                       : spec.type == 'X' ? fmt::format("{:X}", size)
                       : spec.type == 'o' ? fmt::format("{:o}", size)
                       : spec.type == 'b' ? fmt::format("{:b}", size)
                                          : fmt::to_string(size);
  if (spec.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  return number_text(budget, spec, number < 0, prefix, std::move(digits));
}

Text format_real(Budget& budget, const Spec& spec, double number) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const double size = std::abs(number);
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", size, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", size * 100, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", size, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", size, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", size, precision);
      break;
    default:
      digits = fmt::format("{:.{}g}", size, precision);
  }
  return number_text(budget, spec, std::signbit(number) && !std::isnan(number), "", std::move(digits));
}

Text format_text(Budget& budget, const Spec& spec, const Text& text) {
  const size_t end =
      spec.precision < 0 ? text.size() : byte_offset(text.bytes(), static_cast<size_t>(spec.precision));
  return placed(budget, text.part(0, end), spec, '<');
}

Text format_character(Budget& budget, const Spec& spec, const Value& value) {
  if (value.text() && character_count(value.text()->bytes()) == 1)
    return format_text(budget, spec, *value.text());
  const auto code = value.whole();
  if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
    wrong("%c needs a character or its number");
  std::string bytes;
  utf8::append(bytes, static_cast<char32_t>(*code));
  return format_text(budget, spec, Text(bytes, false));
}

/// The "%" format string and where in it we are.
class PercentFormat {
 public:
  PercentFormat(Budget& budget, const Text& format, const Value& value)
      : budget_(budget), format_(format), bytes_(format.bytes()), value_(value) {}

  Text run() {
    Text out;
    while (at_ < bytes_.size()) {
      const size_t next = std::min(bytes_.find('%', at_), bytes_.size());
      out.append(format_, at_, next);
      at_ = next;
      if (at_ < bytes_.size()) directive(out);
    }
    // Python lets whatever can be indexed by a name pass.
    const bool may_be_left = value_.dict() || value_.is_undefined() || value_.is_list();
    if (!may_be_left && next_ < (value_.is_tuple() ? value_.items()->size() : 1))
      wrong("not all arguments converted during string formatting");
    return out;
  }

 private:
  char peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }

  const Value& argument() {
    const size_t place = next_++;
    if (value_.is_tuple()) {
      if (place >= value_.items()->size()) wrong("not enough arguments for format string");
      return (*value_.items())[place];
    }
    if (place != 0) wrong("not enough arguments for format string");
    return value_;
  }

  int64_t width() {
    if (peek() != '*') return read_number(bytes_, at_, 0);
    ++at_;
    const Value& value = argument();
    if (!value.whole()) wrong("* wants int");
    return *value.whole();
  }

  void directive(Text& out) {
    ++at_;
    const Value* named = nullptr;
    if (peek() == '(') {
      const size_t end = bytes_.find(')', at_);
      if (end == bytes_.npos) wrong("incomplete format key");
      if (!value_.dict()) wrong("format requires a mapping");
      const std::string key = bytes_.substr(at_ + 1, end - at_ - 1);
      named = value_.dict()->find(key);
      if (!named) wrong("the format's key '{}' is not there", key);
      at_ = end + 1;
    }
    Spec spec;
    for (; peek() != '\0' && std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      if (peek() == '-') spec.align = '<';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
      if (peek() == '#') spec.alternative = true;
      if (peek() == '0' && spec.align == '\0') spec.align = '=';
    }
    spec.width = width();
    if (spec.width < 0) spec.align = '<';
    spec.width = spec.width == INT64_MIN ? INT64_MAX : std::abs(spec.width);
    if (peek() == '.') {
      ++at_;
      set_precision(spec, std::max<int64_t>(width(), 0));
    }
    if (at_ >= bytes_.size()) wrong("incomplete format");
    spec.type = bytes_[at_++];
    if (spec.type == '%')
      out.append("%", true);
    else
      out.append(formatted(spec, named ? *named : argument()));
  }

  Text formatted(Spec spec, const Value& value) {
    const bool zeros = spec.align == '=';
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        if (zeros) spec.align = '\0';
        if (!spec.align) spec.align = '>';
        return format_text(budget_, spec, spec.type == 's' ? to_text(budget_, value) : repr(budget_, value));
      case 'c':
        if (!spec.align || zeros) spec.align = '>';
        return format_character(budget_, spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        if (zeros) spec.fill = "0";
        if (!value.is_number())
          wrong("%{} format: a real number is required, not {}", spec.type, value.type_name());
        if (!value.whole() && std::string_view("oxX").find(spec.type) != std::string_view::npos)
          wrong("%{} format: an integer is required, not {}", spec.type, value.type_name());
        const double real = *value.number();
        if (!value.whole() && !(std::abs(real) < 9.2e18)) wrong("a whole number has more than 64 bits");
        return format_whole(budget_, spec, value.whole() ? *value.whole() : static_cast<int64_t>(real));
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (zeros) spec.fill = "0";
        if (!value.number()) wrong("must be real number, not {}", value.type_name());
        return format_real(budget_, spec, *value.number());
      default:
        wrong("unsupported format character '{}'", std::string_view(&spec.type, 1));
    }
  }

  Budget& budget_;
  const Text& format_;
  const std::string& bytes_;
  const Value& value_;
  size_t at_ = 0, next_ = 0;
};

Spec parse_spec(std::string_view text) {
  Spec spec{.type = '\0'};
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t next = utf8::next_position(text, 0);
    if (next < text.size() && is_align(text[next])) {
      spec.fill = text.substr(0, next);
      spec.align = text[next];
      at = next + 1;
    } else if (is_align(peek())) {
      spec.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') spec.alternative = at++ < text.size();
  if (peek() == '0' && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, at, 0);
  if (spec.width < 0) wrong("invalid format specifier '{}'", text);
  if (peek() == ',') spec.thousands = at++ < text.size();
  if (peek() == '.') set_precision(spec, read_number(text, ++at, -1));
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) wrong("invalid format specifier '{}'", text);
  return spec;
}

Text format_value(Budget& budget, const Value& value, std::string_view text) {
  Spec spec = parse_spec(text);
  if (text.empty()) return to_text(budget, value);
  if (value.whole() &&
      (spec.type == '\0' || std::string_view("dxXobn").find(spec.type) != std::string_view::npos))
    return format_whole(budget, spec, *value.whole());
  constexpr std::string_view kRealTypes = "eEfFgGn%";
  const bool is_real = spec.type == '\0' || kRealTypes.find(spec.type) != kRealTypes.npos;
  if (value.is_number() && is_real && !value.huge()) {
    if (spec.type == '\0' && spec.precision < 0) {
      Spec plain = spec;
      const double number = *value.number();
      return number_text(budget, plain, std::signbit(number), "", repr(std::abs(number)));
    }
    return format_real(budget, spec, *value.number());
  }
  if (!value.text() && !value.is_number())
    wrong("unsupported format string passed to {}.__format__", value.type_name());
  if (!value.text() || (spec.type != '\0' && spec.type != 's'))
    wrong("unknown format code '{}' for object of type '{}'", std::string_view(&spec.type, 1),
          value.type_name());
  if (spec.align == '=') spec.align = '<';
  return format_text(budget, spec, to_text(budget, value));
}

/// A "{}" format string, and those inside its fields.
class BraceFormat {
 public:
  BraceFormat(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  Text run(const Text& format, int depth = 0) {
    if (depth > 2) wrong("Max string recursion exceeded");
    const std::string& bytes = format.bytes();
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t next = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format, at, next);
      if (next == bytes.size()) break;
      if (next + 1 < bytes.size() && bytes[next + 1] == bytes[next]) {
        out.append(format, next, next + 1);
        at = next + 2;
        continue;
      }
      if (bytes[next] == '}') wrong("Single '}}' encountered in format string");
      const size_t end = field_end(bytes, next + 1);
      out.append(field(format.part(next + 1, end), depth));
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t field_end(const std::string& bytes, size_t at) {
    for (int open = 1; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    wrong("expected '}}' before end of string");
  }

  Text field(const Text& text, int depth) {
    const std::string& bytes = text.bytes();
    const size_t colon = std::min(bytes.find(':'), bytes.size());
    const size_t bang = std::min(bytes.find('!'), colon);
    Value value = lookup(std::string_view(bytes).substr(0, bang));
    if (bang < colon) {
      const std::string_view conversion = std::string_view(bytes).substr(bang + 1, colon - bang - 1);
      if (conversion != "s" && conversion != "r" && conversion != "a")
        wrong("unknown conversion '{}'", conversion);
      value = conversion == "s" ? to_text(interpreter_.budget(), value) : repr(interpreter_.budget(), value);
    }
    const Text spec = colon < bytes.size() ? run(text.part(colon + 1, bytes.size()), depth + 1) : Text();
    return format_value(interpreter_.budget(), value, spec.bytes());
  }

  /// "", "0", "name", each with ".attribute" and "[item]" behind.
  Value lookup(std::string_view path) {
    const size_t name_end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, name_end));
    for (size_t at = name_end; at < path.size();) {
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        value = interpreter_.attribute(value, path.substr(at + 1, end - at - 1));
        at = end;
      } else if (path[at] == '[') {
        const size_t end = path.find(']', at);
        if (end == path.npos) wrong("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, end - at - 1);
        const auto index = as_index(key);
        value = interpreter_.item(value, index ? Value(*index) : Value::words(key));
        at = end + 1;
      } else {
        wrong("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static std::optional<int64_t> as_index(std::string_view text) {
    if (text.empty() || !std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); }))
      return std::nullopt;
    size_t at = 0;
    return read_number(text, at, 0);
  }

  Value argument(std::string_view name) {
    const auto index = name.empty() ? std::optional(next_++) : as_index(name);
    if (index) {
      if (static_cast<size_t>(*index) >= arguments_.positional.size())
        wrong("Replacement index {} out of range for positional args tuple", *index);
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    for (const auto& [given, value] : arguments_.named)
      if (given == name) return value;
    wrong("the format's key '{}' is not there", name);
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

Text format_percent(Budget& budget, const Text& format, const Value& value) {
  return PercentFormat(budget, format, value).run();
}

Text format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments) {
  return BraceFormat(interpreter, arguments).run(format);
}

}  // namespace weft::jinja
