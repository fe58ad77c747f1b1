#pragma once

#include <cstdint>
#include <optional>

#include "text/jinja/value.h"

/// Python's string operations. Every piece of a result is as trusted as the text it came from.
namespace weft::jinja {

enum class Side { left, right, both };

bool is_space(char32_t code);  ///< str.isspace

/// Without spaces, or without any of `chars`, at the ends.
Text strip(const Text& text, const Text* chars = nullptr, Side side = Side::both);
/// At most `count` times where it is not negative.
Text replace(Budget& budget, const Text& text, const Text& old, const Text& with, int64_t count = -1);
/// At `separator`, or at runs of spaces when there is none; at most `limit` cuts, counted from the end with
/// Side::right.
List split(const Text& text, const Text* separator, int64_t limit, Side from = Side::left);
std::vector<Text> split_lines(const Text& text, bool keep_ends = false);
Text join(Budget& budget, const Text& separator, const std::vector<Text>& parts);
Text repeat(Budget& budget, const Text& text, int64_t count);

Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);
Text title(const Text& text);  ///< str.title: a word is a run of letters
Text swap_case(const Text& text);

/// To `width` characters; Side is where the text goes, both is the middle.
Text pad(Budget& budget, const Text& text, int64_t width, std::string_view fill, Side side);
Text escape_html(const Text& text);

}  // namespace weft::jinja
