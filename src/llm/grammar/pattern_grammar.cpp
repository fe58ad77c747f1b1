#include "llm/grammar/pattern_grammar.h"

#include <algorithm>

#include "base/error.h"
#include "io/safetensors.h"
#include "text/regex_parse.h"
#include "text/utf8.h"

namespace weft {
namespace {

using regex::Node;

/// ECMA-262's notation in that of our parser: \d and \w are ASCII, a dot is no end of a line, and [ and &&
/// mean nothing inside a class.
std::string to_oniguruma(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  const auto put_class = [&](std::string_view inside, bool negative) {
    if (in_class && !negative)
      result += inside;
    else
      result += fmt::format("[{}{}]", negative ? "^" : "", inside);
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char kind = pattern[++i];
      if (kind == 'd' || kind == 'D')
        put_class("0-9", kind == 'D');
      else if (kind == 'w' || kind == 'W')
        put_class("A-Za-z0-9_", kind == 'W');
      else if (kind == 's')
        put_class(" \\t\\n\\r\\f\\v", false);
      else if (kind == 'S')
        put_class("\\s\\x{FEFF}", true);
      else
        result += {c, kind};
    } else if (!in_class && c == '.') {
      result += "[^\\n\\r\\x{2028}\\x{2029}]";
    } else if (in_class && (c == '[' || c == '&')) {
      result += {'\\', c};
    } else {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      result += c;
    }
  }
  return result;
}

constexpr size_t kNoEnd = static_cast<size_t>(-1);

size_t times(size_t a, size_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kNoEnd / b ? kNoEnd : a * b;
}
size_t plus(size_t a, size_t b) {
  return a > kNoEnd - b ? kNoEnd : a + b;
}

struct Lengths {
  size_t min = 0, max = 0;
};

Lengths lengths_of(const Node& node) {
  Lengths result;
  switch (node.kind) {
    case Node::Kind::set:
      return {1, 1};
    case Node::Kind::choice:
      result.min = kNoEnd;
      for (const Node& part : node.parts) {
        const Lengths one = lengths_of(part);
        result = {std::min(result.min, one.min), std::max(result.max, one.max)};
      }
      return result;
    case Node::Kind::repeat: {
      const Lengths one = lengths_of(node.parts.front());
      const size_t most = node.max == Node::kNoLimit ? kNoEnd : static_cast<size_t>(node.max);
      return {times(one.min, static_cast<size_t>(node.min)), times(one.max, most)};
    }
    default:
      for (const Node& part : node.parts) {
        const Lengths one = lengths_of(part);
        result = {plus(result.min, one.min), plus(result.max, one.max)};
      }
      return result;
  }
}

class PatternWriter {
 public:
  PatternWriter(std::string_view pattern, std::string_view character, std::string_view where)
      : pattern_(pattern), character_(character), where_(where) {}

  std::string whole(Node node, const LengthLimits& limits) const {
    if (node.kind != Node::Kind::choice) return alternative(std::move(node), limits);
    std::string result;
    for (Node& part : node.parts)
      result += (result.empty() ? "(" : " | ") + alternative(std::move(part), limits);
    return result + ")";
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorKind::unsupported, "[json schema] {}: pattern '{}': {} not supported", where_,
         one_line(pattern_), what);
  }

  /// One that may have its own ^ and $.
  std::string alternative(Node node, const LengthLimits& limits) const {
    const auto is = [](const Node& part, std::initializer_list<regex::Assertion> all) {
      return part.kind == Node::Kind::assertion && std::ranges::find(all, part.assertion) != all.end();
    };
    bool from_begin = false, to_end = false;
    while (!node.parts.empty() &&
           is(node.parts.front(), {regex::Assertion::line_begin, regex::Assertion::text_begin})) {
      node.parts.erase(node.parts.begin());
      from_begin = true;
    }
    while (!node.parts.empty() &&
           is(node.parts.back(), {regex::Assertion::line_end, regex::Assertion::text_end,
                                  regex::Assertion::text_end_or_newline})) {
      node.parts.pop_back();
      to_end = true;
    }
    fit(node, from_begin && to_end, limits);
    std::string result;
    if (!from_begin) result += fmt::format("{}* ", character_);
    result += expression(node);
    if (!to_end) result += fmt::format(" {}*", character_);
    return result;
  }

  /// Makes the lengths fit by changing the one repetition that can be changed.
  void fit(Node& sequence, bool anchored, const LengthLimits& limits) const {
    const auto fits = [&] {
      const Lengths lengths = lengths_of(sequence);
      return lengths.min >= limits.min && (!limits.max || (anchored && lengths.max <= *limits.max));
    };
    if (fits()) return;
    size_t others = 0;
    Node* variable = nullptr;
    if (anchored)
      for (Node& part : sequence.parts) {
        const Lengths lengths = lengths_of(part);
        if (lengths.min == lengths.max) {
          others = plus(others, lengths.min);
        } else if (part.kind == Node::Kind::repeat && part.parts.front().kind == Node::Kind::set &&
                   !variable) {
          variable = &part;
        } else {
          variable = nullptr;
          break;
        }
      }
    constexpr size_t kMost = 1 << 30;
    if (variable && limits.min < kMost && (!limits.max || (*limits.max < kMost && *limits.max >= others))) {
      variable->min = std::max(variable->min, static_cast<int>(limits.min - std::min(others, limits.min)));
      if (limits.max) {
        const int most = static_cast<int>(*limits.max - others);
        variable->max = variable->max == Node::kNoLimit ? most : std::min(variable->max, most);
      }
      if ((variable->max == Node::kNoLimit || variable->min <= variable->max) && fits()) return;
    }
    unsupported("minLength or maxLength beside it is");
  }

  std::string expression(const Node& node) const {
    switch (node.kind) {
      case Node::Kind::set:
        return json_characters(node.set);
      case Node::Kind::sequence: {
        std::string result = "(";
        for (const Node& part : node.parts) result += (result.size() > 1 ? " " : "") + expression(part);
        return result + ")";
      }
      case Node::Kind::choice: {
        std::string result;
        for (const Node& part : node.parts) result += (result.empty() ? "(" : " | ") + expression(part);
        return result + ")";
      }
      case Node::Kind::repeat: {
        const std::string part = expression(node.parts.front());
        if (node.max == Node::kNoLimit) return fmt::format("{}{{{},}}", part, node.min);
        return fmt::format("{}{{{},{}}}", part, node.min, node.max);
      }
      case Node::Kind::assertion:
        unsupported("an anchor inside it is");
      default:
        unsupported("looking ahead or behind is");
    }
  }

  std::string_view pattern_, character_, where_;
};

void append_class_character(std::string& text, char32_t code) {
  if (code < 0x20 || code == 0x7F)
    text += fmt::format("\\x{:02X}", static_cast<unsigned>(code));
  else if (std::u32string_view(U"\\]-^[\"").find(code) != std::u32string_view::npos)
    text += {'\\', static_cast<char>(code)};
  else if (code < 0x7F)
    text += static_cast<char>(code);
  else
    text += fmt::format("\\U{:08X}", static_cast<unsigned>(code));
}

}  // namespace

std::string gbnf_literal(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + "\"";
}

std::string json_characters(const CodeSet& set) {
  static const CodeSet escaped =
      CodeSet::range(0, 0x1F) | CodeSet::range('"', '"') | CodeSet::range('\\', '\\');
  static const CodeSet surrogates = CodeSet::range(0xD800, 0xDFFF);
  const CodeSet plain = set & ~(escaped | surrogates);
  std::string result;
  if (!plain.ranges().empty()) {
    result += "[";
    for (const auto& [first, last] : plain.ranges()) {
      append_class_character(result, first);
      if (last > first) result += "-", append_class_character(result, last);
    }
    result += "]";
  }
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  std::string letters;
  for (const auto& [code, letter] : kShort)
    if (set.contains(static_cast<unsigned char>(code)))
      append_class_character(letters, static_cast<unsigned char>(letter));
  if (!letters.empty()) result += fmt::format("{}\"\\\\\" [{}]", result.empty() ? "" : " | ", letters);
  // Other control characters have long spellings; they are of use only where nothing else is in the set.
  if (result.empty())
    for (char32_t code = 0; code < 0x20; ++code)
      if (set.contains(code))
        result += fmt::format("{}\"\\\\u{:04x}\"", result.empty() ? "" : " | ", static_cast<unsigned>(code));
  return result.empty() ? "[]" : "(" + result + ")";
}

std::string strings_matching(std::string_view pattern, const LengthLimits& limits, std::string_view character,
                             std::string_view where) {
  return PatternWriter(pattern, character, where).whole(regex::parse(to_oniguruma(pattern)), limits);
}

}  // namespace weft
