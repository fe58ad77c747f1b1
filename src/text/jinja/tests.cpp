#include <algorithm>
#include <cmath>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

using I = Interpreter;
using V = const Value;

template <bool (*Holds)(const Value&)>
bool plain(I&, V& value, Arguments arguments) {
  bind("this test", std::move(arguments), {});
  return Holds(value);
}

template <const char* Op>
bool compared(I& interpreter, V& value, Arguments arguments) {
  return compares(interpreter, Op, value, bind("this test", std::move(arguments), {"other"}, 1)[0]);
}
constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">", kGe[] = ">=", kIn[] = "in";

bool is_iterable(V& value) {
  return value.text() || value.items() || value.dict() || value.generator() || value.is_undefined();
}

/// What has a length and can be indexed, as Jinja2 asks it.
bool is_sequence(V& value) {
  return value.text() || value.is_list() || value.is_tuple() || value.dict() || value.is_undefined();
}

bool is_true(V& value) {
  return value.boolean() && *value.boolean();
}

bool is_false(V& value) {
  return value.boolean() && !*value.boolean();
}

bool is_callable(V& value) {
  return value.is_undefined() || (value.object() && value.object()->callable());
}

/// All letters of one case, and at least one letter.
template <unicode::Categories Wanted>
bool all_cased(I& interpreter, V& value, Arguments) {
  constexpr unicode::Categories kCased =
      unicode::kSmallLetter | unicode::kCapitalLetter | unicode::kTitleLetter;
  const Text text = to_text(interpreter.budget(), value);
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const unicode::Categories category = unicode::category(utf8::next(text.bytes(), at));
    if (category & Wanted) any = true;
    if (category & kCased & ~Wanted) return false;
  }
  return any;
}

bool is_odd(I& interpreter, V& value, Arguments) {
  return compares(interpreter, "==", arithmetic(interpreter, "%", value, int64_t{2}), int64_t{1});
}
bool is_even(I& interpreter, V& value, Arguments) {
  return compares(interpreter, "==", arithmetic(interpreter, "%", value, int64_t{2}), int64_t{0});
}
bool divisible(I& interpreter, V& value, Arguments arguments) {
  const Value by = bind("divisibleby", std::move(arguments), {"num"}, 1)[0];
  return compares(interpreter, "==", arithmetic(interpreter, "%", value, by), int64_t{0});
}

bool same_as(I&, V& value, Arguments arguments) {
  return value.same_as(bind("sameas", std::move(arguments), {"other"}, 1)[0]);
}

constexpr Row<TestFunction> kTests[] = {
    {"defined", plain<[](V& v) { return !v.is_undefined(); }>},
    {"undefined", plain<[](V& v) { return v.is_undefined(); }>},
    {"none", plain<[](V& v) { return v.is_none(); }>},
    {"boolean", plain<[](V& v) { return v.boolean() != nullptr; }>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<[](V& v) { return v.integer() || v.huge(); }>},
    {"float", plain<[](V& v) { return v.real() != nullptr; }>},
    {"number", plain<[](V& v) { return v.is_number(); }>},
    {"string", plain<[](V& v) { return v.text() != nullptr; }>},
    {"mapping", plain<[](V& v) { return v.dict() != nullptr; }>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"callable", plain<is_callable>},
    {"lower", all_cased<unicode::kSmallLetter>},
    {"upper", all_cased<unicode::kCapitalLetter>},
    {"escaped", plain<[](V& v) { return v.string() && v.string()->markup; }>},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", divisible},
    {"sameas", same_as},
    {"filter", plain<[](V& v) { return v.text() && find_filter(v.text()->bytes()); }>},
    {"test", plain<[](V& v) { return v.text() && find_test(v.text()->bytes()); }>},
    {"in",
     [](I& i, V& v, Arguments a) { return compares(i, kIn, v, bind("in", std::move(a), {"seq"}, 1)[0]); }},
    {"eq", compared<kEq>},
    {"==", compared<kEq>},
    {"equalto", compared<kEq>},
    {"ne", compared<kNe>},
    {"!=", compared<kNe>},
    {"lt", compared<kLt>},
    {"<", compared<kLt>},
    {"lessthan", compared<kLt>},
    {"le", compared<kLe>},
    {"<=", compared<kLe>},
    {"gt", compared<kGt>},
    {">", compared<kGt>},
    {"greaterthan", compared<kGt>},
    {"ge", compared<kGe>},
    {">=", compared<kGe>},
};

}  // namespace

std::span<const Row<TestFunction>> tests() {
  return kTests;
}

}  // namespace weft::jinja
