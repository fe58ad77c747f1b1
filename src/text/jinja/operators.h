#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/interpreter.h"

namespace weft::jinja {

/// + - * / // % **, as Python has them; whole numbers have 64 bits, more is a failure.
Value arithmetic(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
/// == != < <= > >= in, not in
bool compares(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
bool contains(Interpreter& interpreter, const Value& container, const Value& item);
Value negate(const Value& value);

/// value[begin:end:step]; undefined or none is a bound that is left out.
Value slice(Interpreter& interpreter, const Value& value, const Value& begin, const Value& end,
            const Value& step);

}  // namespace weft::jinja
