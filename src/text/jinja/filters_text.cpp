#include <algorithm>

#include "text/jinja/library.h"
#include "text/jinja/text_ops.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

using I = Interpreter;
using V = const Value;

bool given(V& value) {
  return !value.is_undefined() && !value.is_none();
}

int64_t whole(std::string_view filter, V& value, int64_t otherwise) {
  if (!given(value)) return otherwise;
  if (!value.whole()) wrong("{}: a whole number is needed, not '{}'", filter, value.type_name());
  return *value.whole();
}

/// A filter that looks at nothing but its text.
template <Text (*Change)(const Text&)>
Value change(I& interpreter, V& value, Arguments arguments) {
  bind("this filter", std::move(arguments), {});
  return Change(to_text(interpreter.budget(), value));
}

Value trim(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("trim", std::move(arguments), {"chars"});
  if (given(args[0]) && !args[0].text()) wrong("trim: the characters must be a string");
  return strip(to_text(interpreter.budget(), value), args[0].text());
}

Value replace_filter(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("replace", std::move(arguments), {"old", "new", "count"}, 2);
  Budget& budget = interpreter.budget();
  return replace(budget, to_text(budget, value), to_text(budget, args[0]), to_text(budget, args[1]),
                 whole("replace", args[2], -1));
}

/// Every word with a capital; unlike str.title a word begins behind spaces and opening brackets only.
Text title_filter(const Text& text) {
  Text result;
  bool in_word = false;
  text.each_character([&](std::string_view character, bool trusted) {
    size_t at = 0;
    const char32_t code = utf8::next(character, at);
    const bool between =
        is_space(code) || std::string_view("-({[<").find(character) != std::string_view::npos;
    const Text one(character, trusted);
    result.append(in_word ? lower(one) : upper(one));
    in_word = !between;
  });
  return result;
}

Value indent(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("indent", std::move(arguments), {"width", "first", "blank"});
  if (!value.text()) wrong("indent: a string is needed, not '{}'", value.type_name());
  Budget& budget = interpreter.budget();
  const Text by =
      args[0].text() ? *args[0].text() : repeat(budget, Text(" ", true), whole("indent", args[0], 4));
  Text with_end = *value.text();
  with_end.append("\n", true);  // so that a line end at the end counts
  std::vector<Text> lines = split_lines(with_end);
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool wanted = i == 0 ? args[1].truthy() : args[2].truthy() || !lines[i].empty();
    if (!wanted) continue;
    budget.produce(by.size() + lines[i].size());
    Text line = by;
    line.append(lines[i]);
    lines[i] = std::move(line);
  }
  return join(budget, Text("\n", true), lines);
}

Value center(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("center", std::move(arguments), {"width"});
  return pad(interpreter.budget(), to_text(interpreter.budget(), value), whole("center", args[0], 80), " ",
             Side::both);
}

Value truncate(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  if (!value.text()) wrong("truncate: a string is needed, not '{}'", value.type_name());
  const Text end = args[2].is_undefined() ? Text("...", true) : to_text(interpreter.budget(), args[2]);
  const Text& text = *value.text();
  const int64_t length = whole("truncate", args[0], 255), leeway = whole("truncate", args[3], 5);
  const auto end_length = static_cast<int64_t>(character_count(end.bytes()));
  if (length < end_length || leeway < 0)
    wrong("truncate: the length is shorter than the end, or leeway negative");
  if (static_cast<int64_t>(character_count(text.bytes())) - leeway <= length) return value;
  Text result = text.part(0, byte_offset(text.bytes(), static_cast<size_t>(length - end_length)));
  if (const size_t space = result.bytes().rfind(' '); !args[1].truthy() && space != std::string::npos)
    result = result.part(0, space);
  result.append(end);
  return result;
}

bool is_word_character(char32_t code) {
  return code == '_' || unicode::is_letter(code) || unicode::is_number(code);
}

Value wordcount(I& interpreter, V& value, Arguments) {
  const Text text = to_text(interpreter.budget(), value);
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word_character(utf8::next(text.bytes(), at));
    if (word && !in_word) ++count;
    in_word = word;
  }
  return count;
}

/// Lines of at most `width` characters, cut at spaces; words that are longer are cut too.
Value wordwrap(I& interpreter, V& value, Arguments arguments) {
  const List args =
      bind("wordwrap", std::move(arguments), {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (!value.text()) wrong("wordwrap: a string is needed, not '{}'", value.type_name());
  const int64_t asked = whole("wordwrap", args[0], 79);
  if (asked <= 0) wrong("wordwrap: the width must be above 0");
  const auto width = static_cast<size_t>(asked);
  const bool cut = args[1].is_undefined() || args[1].truthy();
  std::vector<Text> lines;
  for (const Text& line : split_lines(*value.text())) {
    Text current;
    size_t used = 0;
    bool wrapped = false;
    for (V& held : split(line, nullptr, -1)) {
      Text word = *held.text();
      size_t length = character_count(word.bytes());
      if (used != 0 && used + 1 + length > width) {
        lines.push_back(std::exchange(current, Text()));
        used = 0;
        wrapped = true;
      }
      while (cut && length > width) {
        const size_t end = byte_offset(word.bytes(), width);
        lines.push_back(word.part(0, end));
        word = word.part(end, word.size());
        length -= width;
      }
      if (used != 0) current.append(" ", true);
      current.append(word);
      used += length + (used != 0 ? 1 : 0);
    }
    if (used != 0 || !wrapped) lines.push_back(current);
  }
  const Text between = given(args[2]) ? to_text(interpreter.budget(), args[2]) : Text("\n", true);
  return join(interpreter.budget(), between, lines);
}

Value escape(I& interpreter, V& value, Arguments) {
  if (value.string() && value.string()->markup) return value;
  return String{std::make_shared<const Text>(escape_html(to_text(interpreter.budget(), value))), true};
}

Value forceescape(I& interpreter, V& value, Arguments) {
  return String{std::make_shared<const Text>(escape_html(to_text(interpreter.budget(), value))), true};
}

Value safe(I& interpreter, V& value, Arguments) {
  return String{std::make_shared<const Text>(to_text(interpreter.budget(), value)), true};
}

Value striptags(I& interpreter, V& value, Arguments) {
  const Text text = to_text(interpreter.budget(), value);
  const std::string& bytes = text.bytes();
  Text kept;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t open = bytes.find('<', begin),
                 close = open == bytes.npos ? bytes.npos : bytes.find('>', open);
    kept.append(text, begin, close == bytes.npos ? bytes.size() : open);
    begin = close == bytes.npos ? bytes.size() : close + 1;
  }
  std::vector<Text> words;
  for (V& word : split(kept, nullptr, -1)) words.push_back(*word.text());
  return join(interpreter.budget(), Text(" ", true), words);
}

std::string quote_url(std::string_view text, bool in_query) {
  std::string out;
  for (unsigned char c : text) {
    const bool plain =
        std::isalnum(c) || std::string_view("_.-~").find(static_cast<char>(c)) != std::string_view::npos;
    if (plain || (c == '/' && !in_query))
      out += static_cast<char>(c);
    else if (c == ' ' && in_query)
      out += '+';
    else
      out += fmt::format("%{:02X}", c);
  }
  return out;
}

Value urlencode(I& interpreter, V& value, Arguments) {
  Budget& budget = interpreter.budget();
  if (value.text() || !(value.dict() || value.items()))
    return Text(quote_url(to_text(budget, value).bytes(), false), false);
  std::string out;
  const auto add = [&](V& key, V& held) {
    if (!out.empty()) out += '&';
    out += fmt::format("{}={}", quote_url(to_text(budget, key).bytes(), true),
                       quote_url(to_text(budget, held).bytes(), true));
  };
  if (value.dict())
    for (const auto& [key, held] : value.dict()->pairs()) add(key, held);
  else
    for (V& pair : *value.items()) {
      const List both = interpreter.iterate(pair);
      if (both.size() != 2) wrong("urlencode: a pair has {} parts", both.size());
      add(both[0], both[1]);
    }
  return Text(out, false);
}

Value format_filter(I& interpreter, V& value, Arguments arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    wrong("format: positional and named arguments cannot be mixed");
  Budget& budget = interpreter.budget();
  const Text format = to_text(budget, value);
  if (arguments.named.empty())
    return format_percent(budget, format, {std::move(arguments.positional), Sequence::Shape::tuple});
  Dict named;
  for (auto& [name, held] : arguments.named) named.set(budget, Value::words(name), std::move(held));
  return format_percent(budget, format, std::move(named));
}

Value string_filter(I& interpreter, V& value, Arguments) {
  return value.text() ? value : Value(to_text(interpreter.budget(), value));
}

constexpr Row<FilterFunction> kFilters[] = {
    {"upper", change<upper>},
    {"lower", change<lower>},
    {"capitalize", change<capitalize>},
    {"title", change<title_filter>},
    {"trim", trim},
    {"replace", replace_filter},
    {"indent", indent},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"wordwrap", wordwrap},
    {"escape", escape},
    {"e", escape},
    {"forceescape", forceescape},
    {"safe", safe},
    {"striptags", striptags},
    {"urlencode", urlencode},
    {"format", format_filter},
    {"string", string_filter},
};

}  // namespace

std::span<const Row<FilterFunction>> text_filters() {
  return kFilters;
}

}  // namespace weft::jinja
