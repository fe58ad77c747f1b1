#include "text/jinja/text_ops.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "text/find.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

/// The inverse of lower(), of which the tables have one direction.
char32_t to_upper(char32_t code) {
  static const auto* table = [] {
    auto* made = new std::unordered_map<char32_t, char32_t>;
    for (char32_t c = 0; c < 0x20000; ++c)
      if (const char32_t small = unicode::lower(c); small != c) made->try_emplace(small, c);
    return made;
  }();
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 'a' + 'A' : code;
  const auto found = table->find(code);
  return found == table->end() ? code : found->second;
}

void append_upper(std::string& out, char32_t code) {
  if (code == 0xDF)
    out += "SS";
  else
    utf8::append(out, to_upper(code));
}

bool is_cased(char32_t code) {
  return unicode::category(code) & (unicode::kSmallLetter | unicode::kCapitalLetter | unicode::kTitleLetter);
}

/// `change(out, code)` appends what becomes of each character.
template <typename Change>
Text change_characters(const Text& text, Change change) {
  Text result;
  text.each_run([&](std::string_view bytes, bool trusted) {
    std::string out;
    for (size_t at = 0; at < bytes.size();) change(out, utf8::next(bytes, at));
    result.append(out, trusted);
  });
  return result;
}

bool is_line_end(char32_t code) {
  return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

List split_at(const Text& text, const std::string& separator, int64_t limit) {
  const std::string& bytes = text.bytes();
  List parts;
  size_t begin = 0;
  for (size_t at = find_text(bytes, separator); at != bytes.npos && limit-- != 0;
       at = find_text(bytes, separator, begin)) {
    parts.push_back(text.part(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.part(begin, bytes.size()));
  return parts;
}

List split_at_from_end(const Text& text, const std::string& separator, int64_t limit) {
  const std::string& bytes = text.bytes();
  const std::string turned(bytes.rbegin(), bytes.rend()), mark(separator.rbegin(), separator.rend());
  List parts;
  size_t end = bytes.size();
  for (size_t at = find_text(turned, mark); at != turned.npos && limit-- != 0;
       at = find_text(turned, mark, bytes.size() - end)) {
    parts.push_back(text.part(bytes.size() - at, end));
    end = bytes.size() - at - mark.size();
  }
  parts.push_back(text.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

/// Words and the spaces between them; the rest after `limit` cuts is one word, with the spaces at its far
/// end.
List split_at_spaces(const Text& text, int64_t limit) {
  const std::string& bytes = text.bytes();
  const auto skip = [&](size_t at, bool spaces) {
    while (at < bytes.size()) {
      size_t next = at;
      if (is_space(utf8::next(bytes, next)) != spaces) break;
      at = next;
    }
    return at;
  };
  List parts;
  for (size_t begin = skip(0, true); begin < bytes.size();) {
    const size_t end = limit-- == 0 ? bytes.size() : skip(begin, false);
    parts.push_back(text.part(begin, end));
    begin = skip(end, true);
  }
  return parts;
}

List split_at_spaces_from_end(const Text& text, int64_t limit) {
  const std::string& bytes = text.bytes();
  const auto skip = [&](size_t at, bool spaces) {
    while (at > 0) {
      size_t before = at;
      if (is_space(utf8::previous(bytes, before)) != spaces) break;
      at = before;
    }
    return at;
  };
  List parts;
  for (size_t end = skip(bytes.size(), true); end > 0;) {
    const size_t begin = limit-- == 0 ? 0 : skip(end, false);
    parts.push_back(text.part(begin, end));
    end = skip(begin, true);
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace

bool is_space(char32_t code) {
  return unicode::is_space(code) || (code >= 0x1C && code <= 0x1F);
}

Text strip(const Text& text, const Text* chars, Side side) {
  const std::string& bytes = text.bytes();
  std::unordered_set<char32_t> given;
  for (size_t at = 0; chars && at < chars->size();) given.insert(utf8::next(chars->bytes(), at));
  const auto goes = [&](char32_t code) { return chars ? given.contains(code) : is_space(code); };
  size_t begin = 0, end = bytes.size();
  while (side != Side::right && begin < end) {
    size_t next = begin;
    const char32_t code = utf8::next(bytes, next);
    if (!goes(code)) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    size_t before = end;
    const char32_t code = utf8::previous(bytes, before);
    if (!goes(code)) break;
    end = before;
  }
  return text.part(begin, end);
}

Text replace(Budget& budget, const Text& text, const Text& old, const Text& with, int64_t count) {
  const std::string& bytes = text.bytes();
  Text result;
  size_t begin = 0;
  const auto put = [&](size_t end) {
    budget.produce(end - begin + with.size());
    result.append(text, begin, end);
    result.append(with);
  };
  if (old.empty()) {  // between all characters, and at both ends
    for (size_t at = 0; at <= bytes.size() && count-- != 0;
         at = at < bytes.size() ? utf8::next_position(bytes, at) : at + 1) {
      put(at);
      begin = at;
    }
  } else {
    for (size_t at = find_text(bytes, old.bytes()); at != bytes.npos && count-- != 0;
         at = find_text(bytes, old.bytes(), begin)) {
      put(at);
      begin = at + old.size();
    }
  }
  result.append(text, begin, bytes.size());
  return result;
}

List split(const Text& text, const Text* separator, int64_t limit, Side from) {
  const bool from_end = from == Side::right;
  if (!separator) return from_end ? split_at_spaces_from_end(text, limit) : split_at_spaces(text, limit);
  if (separator->empty()) wrong("empty separator");
  return from_end ? split_at_from_end(text, separator->bytes(), limit)
                  : split_at(text, separator->bytes(), limit);
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  std::vector<Text> lines;
  for (size_t begin = 0, at = 0; begin < bytes.size(); begin = at) {
    size_t end = begin;
    at = begin;
    while (at < bytes.size()) {
      const char32_t code = utf8::next(bytes, at);
      if (is_line_end(code)) {
        if (code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
        break;
      }
      end = at;
    }
    lines.push_back(text.part(begin, keep_ends ? at : end));
  }
  return lines;
}

Text join(Budget& budget, const Text& separator, const std::vector<Text>& parts) {
  Text result;
  for (const Text& part : parts) {
    budget.produce(part.size() + separator.size());
    if (&part != &parts.front()) result.append(separator);
    result.append(part);
  }
  return result;
}

Text repeat(Budget& budget, const Text& text, int64_t count) {
  Text result;
  if (count <= 0 || text.empty()) return result;
  budget.produce(static_cast<size_t>(count), text.size());
  for (int64_t i = 0; i < count; ++i) result.append(text);
  return result;
}

Text upper(const Text& text) {
  return change_characters(text, append_upper);
}

Text lower(const Text& text) {
  return change_characters(text, unicode::append_lower);
}

Text capitalize(const Text& text) {
  return change_characters(text, [first = true](std::string& out, char32_t code) mutable {
    std::exchange(first, false) ? append_upper(out, code) : unicode::append_lower(out, code);
  });
}

Text title(const Text& text) {
  return change_characters(text, [in_word = false](std::string& out, char32_t code) mutable {
    in_word ? unicode::append_lower(out, code) : append_upper(out, code);
    in_word = is_cased(code);
  });
}

Text swap_case(const Text& text) {
  return change_characters(text, [](std::string& out, char32_t code) {
    unicode::category(code) & unicode::kCapitalLetter ? unicode::append_lower(out, code)
                                                      : append_upper(out, code);
  });
}

Text pad(Budget& budget, const Text& text, int64_t width, std::string_view fill, Side side) {
  const auto length = static_cast<int64_t>(character_count(text.bytes()));
  if (width <= length) return text;
  const int64_t missing = width - length;
  // Where Python puts the odd one of a text in the middle.
  const int64_t left = side == Side::left    ? 0
                       : side == Side::right ? missing
                                             : missing / 2 + (missing & width & 1);
  const Text unit(fill, true);
  Text result = repeat(budget, unit, left);
  result.append(text);
  result.append(repeat(budget, unit, missing - left));
  return result;
}

Text escape_html(const Text& text) {
  return change_characters(text, [](std::string& out, char32_t code) {
    switch (code) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        utf8::append(out, code);
    }
  });
}

}  // namespace weft::jinja
