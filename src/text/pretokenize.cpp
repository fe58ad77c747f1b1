#include "text/pretokenize.h"

#include <algorithm>
#include <memory>

#include "text/byte_level.h"
#include "text/find.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::pretokenizers {
namespace {

/// A part of a piece: a match of the pattern, or what is between two.
struct Part {
  size_t begin, end;
  bool match;
};
using Parts = std::vector<Part>;

/// Joins the parts of one piece as `behavior` says and appends what is left of them.
void append_parts(const Parts& parts, Behavior behavior, std::vector<Pieces::Span>& spans) {
  const size_t first = spans.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [begin, end, match] = parts[i];
    if (behavior == Behavior::removed && match) continue;
    const bool after_match = i > 0 && parts[i - 1].match;
    const bool joins = (behavior == Behavior::contiguous && after_match == match) ||
                       (behavior == Behavior::merged_with_previous && match && !after_match) ||
                       (behavior == Behavior::merged_with_next && !match && after_match);
    if (joins && spans.size() > first)
      spans.back().end = end;
    else
      spans.push_back({begin, end});
  }
  const auto empty = [](const Pieces::Span& span) { return span.begin == span.end; };  // of empty matches
  spans.erase(std::remove_if(spans.begin() + static_cast<ptrdiff_t>(first), spans.end(), empty), spans.end());
}

/// Cuts every piece. `find(piece, add)` calls `add(begin, end)` for each match in its order.
template <typename Find>
void cut(Pieces& pieces, Behavior behavior, bool invert, const Find& find) {
  std::vector<Pieces::Span> spans;
  spans.reserve(pieces.spans.size());
  Parts parts;
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const auto [begin, end] = pieces.spans[i];
    parts.clear();
    size_t last = begin;
    find(pieces[i], [&](size_t from, size_t to) {
      if (begin + from > last) parts.push_back({last, begin + from, invert});
      parts.push_back({begin + from, begin + to, !invert});
      last = begin + to;
    });
    if (last < end) parts.push_back({last, end, invert});
    append_parts(parts, behavior, spans);
  }
  pieces.spans = std::move(spans);
}

/// Cuts at each character for which `wanted` is true.
template <typename Wanted>
void cut_at(Pieces& pieces, Behavior behavior, const Wanted& wanted) {
  cut(pieces, behavior, false, [&](std::string_view piece, const auto& add) {
    for (size_t pos = 0; pos < piece.size();) {
      const size_t begin = pos;
      if (wanted(utf8::next(piece, pos))) add(begin, pos);
    }
  });
}

/// Replaces the text of each piece by `change(piece, index)`.
template <typename Change>
void rewrite(Pieces& pieces, const Change& change) {
  pieces.at_start &= pieces.spans.empty() || pieces.spans[0].begin == 0;
  std::string text;
  text.reserve(pieces.text.size() * 2);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t begin = text.size();
    text += change(pieces[i], i);
    check_growth(pieces.text.size(), text.size());
    pieces.spans[i] = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

bool is_punctuation(char32_t code) {
  return unicode::is_punctuation(code) || (code < 0x7F && (unicode::category(code) & unicode::kSymbol));
}

}  // namespace

PreTokenizer split(Regex regex, Behavior behavior, bool invert) {
  return [regex = std::make_shared<Regex>(std::move(regex)), behavior, invert](Pieces& pieces) {
    RegexSearch search(*regex);
    cut(pieces, behavior, invert, [&](std::string_view piece, const auto& add) {
      search.start(piece);
      while (const auto match = search.next()) add(match->begin, match->end);
    });
  };
}

PreTokenizer split_text(std::string text, Behavior behavior, bool invert) {
  return [text = std::move(text), behavior, invert](Pieces& pieces) {
    if (text.empty()) return;
    cut(pieces, behavior, invert, [&](std::string_view piece, const auto& add) {
      for (size_t found = find_text(piece, text); found != piece.npos;
           found = find_text(piece, text, found + text.size()))
        add(found, found + text.size());
    });
  };
}

PreTokenizer whitespace_split() {
  return [](Pieces& pieces) { cut_at(pieces, Behavior::removed, unicode::is_space); };
}

PreTokenizer whitespace() {
  return split(Regex(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)"), Behavior::removed, true);
}

PreTokenizer bert() {
  return [](Pieces& pieces) {
    cut_at(pieces, Behavior::removed, unicode::is_space);
    cut_at(pieces, Behavior::isolated, is_punctuation);
  };
}

PreTokenizer punctuation(Behavior behavior) {
  return [behavior](Pieces& pieces) { cut_at(pieces, behavior, is_punctuation); };
}

PreTokenizer digits(bool individual) {
  const Behavior behavior = individual ? Behavior::isolated : Behavior::contiguous;
  return [behavior](Pieces& pieces) { cut_at(pieces, behavior, unicode::is_number); };
}

PreTokenizer fixed_length(size_t characters) {
  return [characters](Pieces& pieces) {
    cut(pieces, Behavior::isolated, false, [&](std::string_view piece, const auto& add) {
      for (size_t pos = 0; pos < piece.size();) {
        const size_t begin = pos;
        for (size_t i = 0; i < characters && pos < piece.size(); ++i) pos = utf8::next_position(piece, pos);
        add(begin, pos);
      }
    });
  };
}

PreTokenizer byte_level(bool add_prefix_space, bool use_regex) {
  const PreTokenizer words = use_regex ? split(Regex(kGpt2Pattern), Behavior::isolated) : PreTokenizer();
  return [words, add_prefix_space](Pieces& pieces) {
    if (add_prefix_space)
      rewrite(pieces, [](std::string_view piece, size_t) {
        return (piece.starts_with(' ') ? "" : " ") + std::string(piece);
      });
    if (words) words(pieces);
    rewrite(pieces, [](std::string_view piece, size_t) { return to_byte_level(piece); });
  };
}

PreTokenizer metaspace(std::string replacement, Prepend prepend, bool split) {
  const PreTokenizer words = split ? split_text(replacement, Behavior::merged_with_next) : PreTokenizer();
  return [words, replacement = std::move(replacement), prepend](Pieces& pieces) {
    rewrite(pieces, [&](std::string_view piece, size_t index) {
      std::string text;
      for (char c : piece) (c == ' ' ? text += replacement : text += c);
      const bool wanted =
          prepend == Prepend::always || (prepend == Prepend::first && pieces.at_start && index == 0);
      return wanted && !text.starts_with(replacement) ? replacement + text : text;
    });
    if (words) words(pieces);
  };
}

}  // namespace weft::pretokenizers
