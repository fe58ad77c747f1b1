#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/code_set.h"

namespace weft {

/// How many characters a string may have.
struct LengthLimits {
  size_t min = 0;
  std::optional<size_t> max;
};

/// `text` as a GBNF literal.
std::string gbnf_literal(std::string_view text);

/// A GBNF expression for one character of the set, spelt as inside a JSON string.
std::string json_characters(const CodeSet& set);

/// A GBNF expression for what is between the quotes of JSON strings that match a regular expression
/// (ECMA-262's, as JSON Schema has them) and are as long as wanted. `character` is the rule of any character.
/// Throws ErrorKind::unsupported, `[json schema] WHERE: ...`, for what is not regular or not possible.
std::string strings_matching(std::string_view pattern, const LengthLimits& limits, std::string_view character,
                             std::string_view where);

}  // namespace weft
