#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/find.h"
#include "text/jinja/library.h"
#include "text/jinja/text_ops.h"

namespace weft::jinja {
namespace {

[[noreturn]] void no_such_operation(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) wrong("{}", a.is_undefined() ? a.reason() : b.reason());
  if (op == "+" && a.text()) wrong("can only concatenate str (not \"{}\") to str", b.type_name());
  wrong("unsupported operand type(s) for {}: '{}' and '{}'", op, a.type_name(), b.type_name());
}

[[noreturn]] void too_large() {
  wrong("a whole number has more than 64 bits");
}

int64_t add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) too_large();
  return result;
}

int64_t subtract(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) too_large();
  return result;
}

int64_t multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) too_large();
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) wrong("division by zero");
  if (b == -1) return subtract(0, a);
  const bool downwards = a % b != 0 && (a < 0) != (b < 0);
  return a / b - (downwards ? 1 : 0);
}

/// A rest of 0 has the sign of `b`.
double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Not floor(a / b): the quotient may have been rounded up to the next whole number.
double floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  const double whole = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  return whole == 0 ? std::copysign(0.0, a / b) : std::round(whole);
}

double power(double base, double exponent) {
  if (base == 0 && exponent < 0) wrong("0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (!std::isfinite(result) && std::isfinite(base) && std::isfinite(exponent))
    wrong("the result of ** is too large, or no real number");
  return result;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) return power(static_cast<double>(base), static_cast<double>(exponent));
  if (exponent == 0 || (base == -1 && exponent % 2 == 0)) return int64_t{1};
  if (base >= -1 && base <= 1) return base;
  int64_t result = 1;
  for (; exponent > 0; --exponent) result = multiply(result, base);  // 63 rounds overflow
  return result;
}

Value whole_arithmetic(std::string_view op, int64_t a, int64_t b) {
  if (op == "+") return add(a, b);
  if (op == "-") return subtract(a, b);
  if (op == "*") return multiply(a, b);
  if (op == "//") return floor_divide(a, b);
  if (op == "**") return power(a, b);
  if (b == 0) wrong("division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  return b == -1 ? int64_t{0} : a - b * floor_divide(a, b);
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return power(a, b);
  if (b == 0) wrong("division by zero");
  if (op == "/") return a / b;
  return op == "//" ? floor_divide(a, b) : floor_modulo(a, b);
}

Value concatenate(Interpreter& interpreter, const String& a, const String& b) {
  interpreter.budget().produce(a.text->size() + b.text->size());
  Text text = b.markup && !a.markup ? escape_html(*a.text) : *a.text;
  text.append(a.markup && !b.markup ? escape_html(*b.text) : *b.text);
  return String{std::make_shared<const Text>(std::move(text)), a.markup || b.markup};
}

Value concatenate(Interpreter& interpreter, const Sequence& a, const Sequence& b) {
  interpreter.budget().produce(a.items->size() + b.items->size(), sizeof(Value));
  List items = *a.items;
  items.insert(items.end(), b.items->begin(), b.items->end());
  return {std::move(items), a.shape};
}

Value repeat_items(Interpreter& interpreter, const Sequence& sequence, int64_t count) {
  List items;
  if (count > 0 && !sequence.items->empty()) {
    interpreter.budget().produce(static_cast<size_t>(count), sequence.items->size() * sizeof(Value));
    for (int64_t i = 0; i < count; ++i)
      items.insert(items.end(), sequence.items->begin(), sequence.items->end());
  }
  return {std::move(items), sequence.shape};
}

}  // namespace

Value arithmetic(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.text()) return format_percent(interpreter.budget(), *a.text(), b);
  if (a.whole() && b.whole()) return whole_arithmetic(op, *a.whole(), *b.whole());
  if ((a.huge() && b.is_number()) || (b.huge() && a.is_number())) too_large();
  if (a.is_number() && b.is_number()) return real_arithmetic(op, *a.number(), *b.number());
  if (op == "+") {
    if (a.string() && b.string()) return concatenate(interpreter, *a.string(), *b.string());
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple()))
      return concatenate(interpreter, *a.sequence(), *b.sequence());
  }
  if (op == "*") {
    const Value &many = a.whole() ? b : a, &count = a.whole() ? a : b;
    if (many.text() && count.whole()) return repeat(interpreter.budget(), *many.text(), *count.whole());
    if ((many.is_list() || many.is_tuple()) && count.whole())
      return repeat_items(interpreter, *many.sequence(), *count.whole());
  }
  no_such_operation(op, a, b);
}

bool compares(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  Budget& budget = interpreter.budget();
  if (op == "==") return equal(budget, a, b);
  if (op == "!=") return !equal(budget, a, b);
  if (op == "in") return contains(interpreter, b, a);
  if (op == "not in") return !contains(interpreter, b, a);
  const int order = compare(budget, a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  Budget& budget = interpreter.budget();
  if (const Text* text = container.text()) {
    if (item.is_undefined()) wrong("{}", item.reason());
    if (!item.text()) wrong("'in <string>' requires string as left operand, not {}", item.type_name());
    budget.step(weight(container));
    return find_text(text->bytes(), item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(budget, item) != nullptr;
  if (!container.items() && !container.generator() && !container.is_undefined())
    wrong("argument of type '{}' is not iterable", container.type_name());
  return std::ranges::any_of(interpreter.iterate(container),
                             [&](const Value& held) { return equal(budget, held, item); });
}

Value negate(const Value& value) {
  if (const auto whole = value.whole()) return subtract(0, *whole);
  if (value.real()) return -*value.real();
  if (value.huge()) too_large();
  if (value.is_undefined()) wrong("{}", value.reason());
  wrong("bad operand type for unary -: '{}'", value.type_name());
}

Value slice(Interpreter& interpreter, const Value& value, const Value& begin, const Value& end,
            const Value& step) {
  if (value.is_undefined()) wrong("{}", value.reason());
  if (!value.text() && !value.is_list() && !value.is_tuple())
    wrong("'{}' object cannot be sliced", value.type_name());
  interpreter.budget().step(weight(value));
  const auto size =
      static_cast<int64_t>(value.items() ? value.items()->size() : character_count(value.text()->bytes()));
  const auto given = [](const Value& bound) { return !bound.is_undefined() && !bound.is_none(); };
  for (const Value* bound : {&begin, &end, &step})
    if (given(*bound) && !bound->whole()) wrong("slice indices must be integers or None");
  const int64_t by = given(step) ? *step.whole() : 1;
  if (by == 0) wrong("slice step cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  const auto place = [&](const Value& bound, int64_t otherwise) {
    if (!given(bound)) return otherwise;
    const int64_t index = *bound.whole() < 0 ? *bound.whole() + size : *bound.whole();
    return std::clamp(index, lowest, highest);
  };
  const int64_t from = place(begin, by > 0 ? lowest : highest), to = place(end, by > 0 ? highest : lowest);
  if (value.text() && by == 1) {
    const std::string& bytes = value.text()->bytes();
    const size_t first = byte_offset(bytes, static_cast<size_t>(from));
    const auto count = static_cast<size_t>(std::max<int64_t>(to - from, 0));
    return value.text()->part(first, first + byte_offset(std::string_view(bytes).substr(first), count));
  }
  const List all = interpreter.iterate(value);
  List taken;
  // By distance, not by place: a step of 2^63 - 1 must not overflow.
  const int64_t distance = by > 0 ? to - from : from - to;
  for (int64_t moved = 0; moved < distance;) {
    taken.push_back(all[static_cast<size_t>(by > 0 ? from + moved : from - moved)]);
    const int64_t stride = by > 0 ? by : by == INT64_MIN ? INT64_MAX : -by;
    if (stride >= distance - moved) break;
    moved += stride;
  }
  if (value.items()) {
    interpreter.budget().produce(taken.size(), sizeof(Value));
    return {std::move(taken), value.is_tuple() ? Sequence::Shape::tuple : Sequence::Shape::list};
  }
  Text text;
  for (const Value& character : taken) text.append(*character.text());
  return text;
}

}  // namespace weft::jinja
