#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// A decimal number, digit by digit: no rounding on the way from a schema to a grammar.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  ///< without zeros before it
  std::string fraction;     ///< without zeros behind it

  /// Of a number as JSON spells it; nullopt when it has more than 300 digits.
  static std::optional<Decimal> parse(std::string_view text);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
/// -1, 0, 1: a is less than, equal to, greater than b.
int compare(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool exclusive = false;
};

/// Between which bounds a number lies.
struct Bounds {
  std::optional<Bound> low, high;
};

/// GBNF expressions for the numbers within bounds, digit by digit exact; nullopt where there are none.
/// Numbers have at most 15 digits more than the bounds need, and no exponent.
std::optional<std::string> integers_within(const Bounds& bounds);
std::optional<std::string> numbers_within(const Bounds& bounds);

}  // namespace weft
