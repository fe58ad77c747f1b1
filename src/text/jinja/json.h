#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace weft::jinja {

/// A JSON text as a value; its strings are not trusted. Whole numbers stay whole, keys keep their order.
/// Throws Failure.
Value parse_json(Budget& budget, std::string_view json);

struct JsonStyle {
  std::string indent;  ///< of one level
  bool lines = false;  ///< each item on a line of its own
  bool ascii = false, sort_keys = false;
  std::string item_separator = ", ", key_separator = ": ";
};

/// As Python's json.dumps spells it.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace weft::jinja
