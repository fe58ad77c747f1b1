#pragma once

#include <span>
#include <string_view>

#include "text/jinja/interpreter.h"

/// The filters, tests, methods and functions that templates can use: tables of names and functions.
namespace weft::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value&, Arguments);
using TestFunction = bool (*)(Interpreter&, const Value&, Arguments);
using MethodFunction = Value (*)(Interpreter&, const Value&, Arguments);

template <typename Function>
struct Row {
  std::string_view name;
  Function function;
};

std::span<const Row<FilterFunction>> text_filters();
std::span<const Row<FilterFunction>> list_filters();
std::span<const Row<FilterFunction>> value_filters();
std::span<const Row<TestFunction>> tests();
std::span<const Row<MethodFunction>> text_methods();
std::span<const Row<MethodFunction>> list_methods();
std::span<const Row<MethodFunction>> dict_methods();

// Null when there is none of this name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
MethodFunction find_method(const Value& object, std::string_view name);
/// Methods that change a list or dict: Python has them, templates may not use them.
bool is_changing_method(const Value& object, std::string_view name);

void define_functions(Interpreter& interpreter);  ///< range, namespace, raise_exception, ...

/// "%s of %d" % value. Fails for what Python does not take.
Text format_percent(Budget& budget, const Text& format, const Value& value);
/// "{} of {name}".format(...)
Text format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments);

}  // namespace weft::jinja
