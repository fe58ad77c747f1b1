#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

struct Token {
  enum class Type {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,  ///< operators and brackets
    end,
  };
  Type type;
  std::string text;  ///< a string's own, its escapes undone
  int line;

  bool is(Type wanted, std::string_view spelling) const { return type == wanted && text == spelling; }
};

/// The tokens of a template in valid UTF-8, the last one of type end. Whitespace around tags is treated as
/// Jinja2 does with trim_blocks and lstrip_blocks. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace weft::jinja
