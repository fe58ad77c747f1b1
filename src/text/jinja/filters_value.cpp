#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/json.h"
#include "text/jinja/library.h"
#include "text/jinja/text_ops.h"

namespace weft::jinja {
namespace {

using I = Interpreter;
using V = const Value;

bool given(V& value) {
  return !value.is_undefined() && !value.is_none();
}

/// Without spaces around and underscores between digits, as Python reads numbers.
std::string number_text(const Text& text) {
  std::string bytes = strip(text).bytes();
  for (size_t i = 1; i + 1 < bytes.size(); ++i)
    if (bytes[i] == '_' && std::isalnum(static_cast<unsigned char>(bytes[i - 1])) &&
        std::isalnum(static_cast<unsigned char>(bytes[i + 1])))
      bytes.erase(i--, 1);
  if (bytes.starts_with('+') && !bytes.starts_with("+-")) bytes.erase(0, 1);
  return bytes;
}

std::optional<double> read_real(const Text& text) {
  const std::string bytes = number_text(text);
  double number = 0;
  const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
  if (bytes.empty() || read.ptr != bytes.data() + bytes.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) return std::nullopt;
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> read_whole(const Text& text, int base) {
  std::string bytes = number_text(text);
  const bool negative = bytes.starts_with('-');
  const size_t begin = negative ? 1 : 0;
  const char kind =
      bytes.size() > begin + 2 && bytes[begin] == '0' ? static_cast<char>(bytes[begin + 1] | 0x20) : '\0';
  if ((base == 16 && kind == 'x') || (base == 8 && kind == 'o') || (base == 2 && kind == 'b'))
    bytes.erase(begin, 2);
  int64_t number = 0;
  const auto read = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number, base);
  if (bytes.empty() || read.ptr != bytes.data() + bytes.size() || read.ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<int64_t> truncated(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Value int_filter(I&, V& value, Arguments arguments) {
  const List args = bind("int", std::move(arguments), {"default", "base"});
  if (value.is_undefined()) wrong("{}", value.reason());
  if (const auto whole = value.whole()) return *whole;
  if (const Text* text = value.text()) {
    const int64_t base = args[1].whole().value_or(10);
    if (base < 2 || base > 36) wrong("int: the base must be from 2 to 36");
    if (const auto whole = read_whole(*text, static_cast<int>(base))) return *whole;
  }
  const auto real = value.real()   ? std::optional(*value.real())
                    : value.text() ? read_real(*value.text())
                                   : std::nullopt;
  const auto whole = real ? truncated(*real) : std::nullopt;
  if (whole) return *whole;
  return args[0].is_undefined() ? Value(int64_t{0}) : args[0];
}

Value float_filter(I&, V& value, Arguments arguments) {
  List args = bind("float", std::move(arguments), {"default"});
  if (value.is_undefined()) wrong("{}", value.reason());
  const auto real = value.text() ? read_real(*value.text()) : value.number();
  if (real) return *real;
  return args[0].is_undefined() ? Value(0.0) : std::move(args[0]);
}

double number_of(std::string_view filter, V& value) {
  if (value.is_undefined()) wrong("{}", value.reason());
  if (!value.number()) wrong("{}: a number is needed, not '{}'", filter, value.type_name());
  return *value.number();
}

/// To `precision` decimals; a tie goes to the even one, of what the binary number really is.
double rounded(double number, int64_t precision) {
  if (!std::isfinite(number) || precision > 320) return number;
  if (precision >= 0) return std::stod(fmt::format("{:.{}f}", number, static_cast<int>(precision)));
  const double unit = std::pow(10.0, static_cast<double>(std::min<int64_t>(-precision, 400)));
  return std::nearbyint(number / unit) * unit;
}

Value round(I&, V& value, Arguments arguments) {
  const List args = bind("round", std::move(arguments), {"precision", "method"});
  const double number = number_of("round", value);
  const int64_t precision = args[0].whole().value_or(0);
  const std::string method = args[1].text() ? args[1].text()->bytes() : "common";
  if (method == "common") {
    if (value.whole() && precision >= 0) return *value.whole();
    if (!value.whole()) return rounded(number, precision);
    const auto whole = truncated(rounded(number, precision));
    if (!whole) wrong("a whole number has more than 64 bits");
    return *whole;
  }
  if (method != "ceil" && method != "floor") wrong("round: the method is none of common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
}

Value abs_filter(I&, V& value, Arguments) {
  const double number = number_of("abs", value);
  const auto whole = value.whole();
  if (whole && *whole == INT64_MIN) wrong("a whole number has more than 64 bits");
  return whole ? Value(std::abs(*whole)) : Value(std::abs(number));
}

Value default_filter(I&, V& value, Arguments arguments) {
  List args = bind("default", std::move(arguments), {"default_value", "boolean"});
  if (!value.is_undefined() && !(args[1].truthy() && !value.truthy())) return value;
  return args[0].is_undefined() ? Value(Text()) : std::move(args[0]);
}

Value attr(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("attr", std::move(arguments), {"name"}, 1);
  if (!args[0].text()) wrong("attr: a name is needed, not '{}'", args[0].type_name());
  const std::string& name = args[0].text()->bytes();
  // What a dict holds are its items, not its attributes.
  if (value.dict() && !find_method(value, name))
    return Value::undefined(fmt::format("no attribute '{}'", name));
  return interpreter.attribute(value, name);
}

Value tojson(I& interpreter, V& value, Arguments arguments) {
  const List args =
      bind("tojson", std::move(arguments), {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = args[0].truthy(), .sort_keys = args[3].truthy()};
  if (given(args[1])) {
    style.lines = true;
    style.item_separator = ",";
    if (args[1].text())
      style.indent = args[1].text()->bytes();
    else if (const auto width = args[1].whole())
      style.indent = repeat(interpreter.budget(), Text(" ", true), *width).bytes();
    else
      wrong("tojson: indent is neither a number nor a string");
  }
  if (given(args[2])) {
    const List separators = interpreter.iterate(args[2]);
    if (separators.size() != 2 || !separators[0].text() || !separators[1].text())
      wrong("tojson: separators must be two strings");
    style.item_separator = separators[0].text()->bytes();
    style.key_separator = separators[1].text()->bytes();
  }
  return Text(to_json(interpreter.budget(), value, style), false);
}

Value pprint(I& interpreter, V& value, Arguments) {
  return repr(interpreter.budget(), value);
}

Value filesizeformat(I&, V& value, Arguments arguments) {
  const List args = bind("filesizeformat", std::move(arguments), {"binary"});
  const bool binary = args[0].truthy();
  const auto read = value.text() ? read_real(*value.text()) : value.number();
  if (!read) wrong("filesizeformat: a number is needed, not '{}'", value.type_name());
  const double bytes = *read, base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::words("1 Byte");
  if (bytes < base) return Value::words(fmt::format("{} Bytes", truncated(bytes).value_or(0)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t at = 0;
  while (at + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++at;
  }
  const char prefix = binary && at == 0 ? 'K' : kPrefixes[at];
  return Value::words(fmt::format("{:.1f} {}{}", bytes / unit, prefix, binary ? "iB" : "B"));
}

constexpr Row<FilterFunction> kFilters[] = {
    {"int", int_filter},
    {"float", float_filter},
    {"round", round},
    {"abs", abs_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"attr", attr},
    {"tojson", tojson},
    {"pprint", pprint},
    {"filesizeformat", filesizeformat},
};

}  // namespace

std::span<const Row<FilterFunction>> value_filters() {
  return kFilters;
}

}  // namespace weft::jinja
