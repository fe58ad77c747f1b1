#include <algorithm>

#include "text/find.h"
#include "text/jinja/library.h"
#include "text/jinja/text_ops.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

using I = Interpreter;
using V = const Value;

const Text& text_argument(std::string_view method, V& value) {
  if (value.is_undefined()) wrong("{}", value.reason());
  if (!value.text()) wrong("{}: a string is needed, not '{}'", method, value.type_name());
  return *value.text();
}

/// A string or nothing.
const Text* optional_text(std::string_view method, V& value) {
  return value.is_undefined() || value.is_none() ? nullptr : &text_argument(method, value);
}

int64_t whole_argument(std::string_view method, V& value, int64_t otherwise) {
  if (value.is_undefined() || value.is_none()) return otherwise;
  if (!value.whole()) wrong("{}: a whole number is needed, not '{}'", method, value.type_name());
  return *value.whole();
}

template <Side Where>
Value strip_method(I&, V& self, Arguments arguments) {
  const List given = bind("strip", std::move(arguments), {"chars"});
  return strip(*self.text(), optional_text("strip", given[0]), Where);
}

template <Side From>
Value split_method(I&, V& self, Arguments arguments) {
  const List given = bind("split", std::move(arguments), {"sep", "maxsplit"});
  return split(*self.text(), optional_text("split", given[0]), whole_argument("split", given[1], -1), From);
}

template <Text (*Change)(const Text&)>
Value change_method(I&, V& self, Arguments arguments) {
  bind("this method", std::move(arguments), {});
  return Change(*self.text());
}

template <Side Where>
Value pad_method(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("ljust, rjust and center", std::move(arguments), {"width", "fillchar"}, 1);
  const Text* fill = optional_text("fillchar", given[1]);
  if (fill && character_count(fill->bytes()) != 1) wrong("the fill character must be one character");
  return pad(interpreter.budget(), *self.text(), whole_argument("width", given[0], 0),
             fill ? fill->bytes() : " ", Where);
}

/// The characters [begin, end) that two optional arguments mean, as bytes; no range when begin is above end.
std::pair<size_t, size_t> range_of(const std::string& bytes, V& begin, V& end) {
  const auto size = static_cast<int64_t>(character_count(bytes));
  if (whole_argument("index", begin, 0) > size) return {1, 0};  // not even "" is there
  const auto place = [&](V& bound, int64_t otherwise) {
    const int64_t index = whole_argument("index", bound, otherwise);
    return byte_offset(bytes,
                       static_cast<size_t>(std::clamp<int64_t>(index < 0 ? index + size : index, 0, size)));
  };
  return {place(begin, 0), place(end, size)};
}

/// Where it was found, in characters; -1 when it was not.
int64_t find_in(V& self, const List& given, bool last) {
  const std::string& bytes = self.text()->bytes();
  const std::string& wanted = text_argument("find", given[0]).bytes();
  const auto [begin, end] = range_of(bytes, given[1], given[2]);
  if (begin > end) return -1;
  const std::string_view part = std::string_view(bytes).substr(0, end);
  const size_t found = last ? rfind_text(part, wanted) : find_text(part, wanted, begin);
  if (found == part.npos || found < begin) return -1;
  return static_cast<int64_t>(character_count(part.substr(0, found)));
}

template <bool Last, bool Needed>
Value find_method_of(I&, V& self, Arguments arguments) {
  const int64_t place = find_in(self, bind("find", std::move(arguments), {"sub", "start", "end"}, 1), Last);
  if (Needed && place < 0) wrong("substring not found");
  return place;
}

Value count_method(I&, V& self, Arguments arguments) {
  const List given = bind("count", std::move(arguments), {"sub", "start", "end"}, 1);
  const std::string& bytes = self.text()->bytes();
  const std::string& wanted = text_argument("count", given[0]).bytes();
  const auto [begin, end] = range_of(bytes, given[1], given[2]);
  if (begin > end) return int64_t{0};
  const std::string_view part = std::string_view(bytes).substr(begin, end - begin);
  if (wanted.empty()) return static_cast<int64_t>(character_count(part)) + 1;
  int64_t count = 0;
  for (size_t at = find_text(part, wanted); at != part.npos; at = find_text(part, wanted, at + wanted.size()))
    ++count;
  return count;
}

template <bool AtEnd>
Value affix_method(I&, V& self, Arguments arguments) {
  const List given = bind("startswith", std::move(arguments), {"prefix", "start", "end"}, 1);
  const std::string& bytes = self.text()->bytes();
  const auto [begin, end] = range_of(bytes, given[1], given[2]);
  if (begin > end) return false;
  const std::string_view part = std::string_view(bytes).substr(begin, end - begin);
  const auto fits = [part = part](V& affix) {
    const std::string& text = text_argument("startswith", affix).bytes();
    return AtEnd ? part.ends_with(text) : part.starts_with(text);
  };
  return given[0].is_tuple() ? std::ranges::any_of(*given[0].items(), fits) : fits(given[0]);
}

template <bool AtEnd>
Value remove_affix(I&, V& self, Arguments arguments) {
  const List given = bind("removeprefix", std::move(arguments), {"prefix"}, 1);
  const Text &text = *self.text(), &affix = text_argument("removeprefix", given[0]);
  if (AtEnd && text.bytes().ends_with(affix.bytes())) return text.part(0, text.size() - affix.size());
  if (!AtEnd && text.bytes().starts_with(affix.bytes())) return text.part(affix.size(), text.size());
  return self;
}

template <bool Last>
Value partition_method(I&, V& self, Arguments arguments) {
  const List given = bind("partition", std::move(arguments), {"sep"}, 1);
  const Text &text = *self.text(), &separator = text_argument("partition", given[0]);
  if (separator.empty()) wrong("empty separator");
  const size_t at =
      Last ? rfind_text(text.bytes(), separator.bytes()) : find_text(text.bytes(), separator.bytes());
  List parts;
  if (at == std::string::npos)
    parts = Last ? List{Text(), Text(), text} : List{text, Text(), Text()};
  else
    parts = {text.part(0, at), text.part(at, at + separator.size()),
             text.part(at + separator.size(), text.size())};
  return {std::move(parts), Sequence::Shape::tuple};
}

Value replace_method(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("replace", std::move(arguments), {"old", "new", "count"}, 2);
  return replace(interpreter.budget(), *self.text(), text_argument("replace", given[0]),
                 text_argument("replace", given[1]), whole_argument("replace", given[2], -1));
}

Value join_method(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("join", std::move(arguments), {"iterable"}, 1);
  std::vector<Text> parts;
  for (V& item : interpreter.iterate(given[0])) {
    if (!item.text()) wrong("join: a string is needed, not '{}'", item.type_name());
    parts.push_back(*item.text());
  }
  return join(interpreter.budget(), *self.text(), parts);
}

Value splitlines_method(I&, V& self, Arguments arguments) {
  const List given = bind("splitlines", std::move(arguments), {"keepends"});
  List lines;
  for (Text& line : split_lines(*self.text(), given[0].truthy())) lines.emplace_back(std::move(line));
  return lines;
}

Value zfill_method(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("zfill", std::move(arguments), {"width"}, 1);
  const Text& text = *self.text();
  const bool is_signed = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text result = text.part(0, is_signed ? 1 : 0);
  result.append(pad(interpreter.budget(), text.part(result.size(), text.size()),
                    whole_argument("zfill", given[0], 0) - (is_signed ? 1 : 0), "0", Side::right));
  return result;
}

/// True when there are characters and all of them are in the class.
template <bool (*In)(char32_t)>
Value all_method(I&, V& self, Arguments) {
  const std::string& bytes = self.text()->bytes();
  for (size_t at = 0; at < bytes.size();)
    if (!In(utf8::next(bytes, at))) return false;
  return !bytes.empty();
}

bool is_decimal(char32_t code) {
  return unicode::category(code) & unicode::kDigit;
}
bool is_alphanumeric(char32_t code) {
  return unicode::is_letter(code) || unicode::is_number(code);
}

template <bool Upper>
Value cased_method(I& interpreter, V& self, Arguments) {
  return interpreter.test(Upper ? "upper" : "lower", self, {});
}

constexpr Row<MethodFunction> kText[] = {
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<Side::left>},
    {"rsplit", split_method<Side::right>},
    {"splitlines", splitlines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"upper", change_method<upper>},
    {"lower", change_method<lower>},
    {"casefold", change_method<lower>},
    {"title", change_method<title>},
    {"capitalize", change_method<capitalize>},
    {"swapcase", change_method<swap_case>},
    {"ljust", pad_method<Side::left>},
    {"rjust", pad_method<Side::right>},
    {"center", pad_method<Side::both>},
    {"zfill", zfill_method},
    {"find", find_method_of<false, false>},
    {"rfind", find_method_of<true, false>},
    {"index", find_method_of<false, true>},
    {"rindex", find_method_of<true, true>},
    {"count", count_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"join", join_method},
    {"format",
     [](I& interpreter, V& self, Arguments arguments) -> Value {
       return format_braces(interpreter, *self.text(), arguments);
     }},
    {"isspace", all_method<is_space>},
    {"isdigit", all_method<is_decimal>},
    {"isdecimal", all_method<is_decimal>},
    {"isnumeric", all_method<unicode::is_number>},
    {"isalpha", all_method<unicode::is_letter>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isupper", cased_method<true>},
    {"islower", cased_method<false>},
};

Value list_index(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("index", std::move(arguments), {"value"}, 1);
  for (size_t i = 0; i < self.items()->size(); ++i)
    if (equal(interpreter.budget(), (*self.items())[i], given[0])) return static_cast<int64_t>(i);
  wrong("the value is not in the list");
}

Value list_count(I& interpreter, V& self, Arguments arguments) {
  const List given = bind("count", std::move(arguments), {"value"}, 1);
  return static_cast<int64_t>(std::ranges::count_if(
      *self.items(), [&](V& item) { return equal(interpreter.budget(), item, given[0]); }));
}

Value copy(I&, V& self, Arguments arguments) {
  bind("copy", std::move(arguments), {});
  return self;
}

constexpr Row<MethodFunction> kList[] = {
    {"index", list_index},
    {"count", list_count},
    {"copy", copy},
};

Value dict_get(I& interpreter, V& self, Arguments arguments) {
  if (arguments.positional.size() == 1) arguments.positional.emplace_back(None{});
  List given = bind("get", std::move(arguments), {"key", "default"}, 2);
  const Value* found = self.dict()->find(interpreter.budget(), given[0]);
  return found ? *found : std::move(given[1]);
}

Value dict_keys(I&, V& self, Arguments) {
  List keys;
  for (const auto& [key, value] : self.dict()->pairs()) keys.push_back(key);
  return {std::move(keys), Sequence::Shape::keys};
}

Value dict_values(I&, V& self, Arguments) {
  List values;
  for (const auto& [key, value] : self.dict()->pairs()) values.push_back(value);
  return {std::move(values), Sequence::Shape::values};
}

Value dict_items(I&, V& self, Arguments) {
  List items;
  for (const auto& [key, value] : self.dict()->pairs())
    items.push_back({List{key, value}, Sequence::Shape::tuple});
  return {std::move(items), Sequence::Shape::items};
}

constexpr Row<MethodFunction> kDict[] = {
    {"get", dict_get}, {"keys", dict_keys}, {"values", dict_values}, {"items", dict_items}, {"copy", copy},
};

}  // namespace

std::span<const Row<MethodFunction>> text_methods() {
  return kText;
}
std::span<const Row<MethodFunction>> list_methods() {
  return kList;
}
std::span<const Row<MethodFunction>> dict_methods() {
  return kDict;
}

}  // namespace weft::jinja
