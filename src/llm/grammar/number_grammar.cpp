#include "llm/grammar/number_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace weft {
namespace {

constexpr size_t kMaxDigits = 15;  // so many survive the way through a double

std::string any_of(const std::vector<std::string>& alternatives) {
  return alternatives.size() == 1 ? alternatives[0] : fmt::format("({})", fmt::join(alternatives, " | "));
}

std::string digit(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

std::string digits(size_t count) {
  return count == 0 ? "" : count == 1 ? " [0-9]" : fmt::format(" [0-9]{{{}}}", count);
}

bool is_all(std::string_view text, char c) {
  return text.find_first_not_of(c) == text.npos;
}

std::string decremented(std::string whole) {
  for (size_t i = whole.size(); i-- > 0;) {
    if (whole[i]-- != '0') break;
    whole[i] = '9';
  }
  return whole.size() > 1 && whole[0] == '0' ? whole.substr(1) : whole;
}

std::string incremented(std::string whole) {
  for (size_t i = whole.size(); i-- > 0;) {
    if (whole[i]++ != '9') return whole;
    whole[i] = '0';
  }
  return "1" + whole;
}

bool less(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// From `low` to `high`, which have the same number of digits.
std::string same_length(std::string_view low, std::string_view high) {
  if (low.empty()) return "";
  if (is_all(low, '0') && is_all(high, '9')) return digits(low.size()).substr(1);
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    const std::string rest = same_length(low_rest, high_rest);
    return fmt::format("\"{}\"{}{}", low[0], rest.empty() ? "" : " ", rest);
  }
  std::vector<std::string> alternatives;
  char first = low[0], last = high[0];
  if (!is_all(low_rest, '0'))
    alternatives.push_back(
        fmt::format("\"{}\" {}", first++, same_length(low_rest, std::string(low_rest.size(), '9'))));
  const bool cut = !is_all(high_rest, '9');
  if (cut) --last;
  if (first <= last) alternatives.push_back(digit(first, last) + digits(low_rest.size()));
  if (cut)
    alternatives.push_back(
        fmt::format("\"{}\" {}", high[0], same_length(std::string(high_rest.size(), '0'), high_rest)));
  return any_of(alternatives);
}

/// Whole numbers from `low` to `high` (or on) without a sign.
std::string wholes(const std::string& low, const std::optional<std::string>& high) {
  std::vector<std::string> alternatives;
  const size_t most = high ? high->size() : low.size();
  for (size_t size = low.size(); size <= most; ++size) {
    const std::string least = size == low.size() ? low : "1" + std::string(size - 1, '0');
    alternatives.push_back(same_length(least, high && size == high->size() ? *high : std::string(size, '9')));
  }
  if (!high) alternatives.push_back(fmt::format("[1-9] [0-9]{{{},{}}}", most, std::max(most, kMaxDigits)));
  return any_of(alternatives);
}

/// Where the digits behind the point lie; `low` is tight until it is passed.
struct FractionRange {
  std::optional<std::string_view> low, high;  // nullopt: no limit any more
  bool low_exclusive = false, high_exclusive = false;

  bool may_be_zero() const {
    return (!low || (low->empty() && !low_exclusive)) && (!high || !high->empty() || !high_exclusive);
  }
};

/// One digit or more of a fraction within the range; nullopt: there are none. At most `room` digits beyond
/// those of the limits.
std::optional<std::string> fraction_digits(FractionRange range, size_t room) {
  if (range.low && range.low->empty() && !range.low_exclusive) range.low.reset();
  if (range.high && range.high->empty()) {
    if (range.low || range.high_exclusive) return std::nullopt;
    return fmt::format("\"0\"{{1,{}}}", room);
  }
  if (!range.low && !range.high) return fmt::format("[0-9]{{1,{}}}", room);
  if (!range.high && range.low->empty()) return fmt::format("\"0\"{{0,{0}}} [1-9] [0-9]{{0,{0}}}", room / 2);

  const char first = range.low && !range.low->empty() ? range.low->front() : '0';
  const char last = range.high ? range.high->front() : '9';
  const auto rest_of = [](std::string_view text) { return text.substr(std::min<size_t>(1, text.size())); };
  std::vector<std::string> alternatives;
  const auto add = [&](char d, bool at_low, bool at_high) {
    FractionRange rest = range;
    rest.low = at_low ? std::optional(rest_of(*range.low)) : std::nullopt;
    rest.high = at_high ? std::optional(rest_of(*range.high)) : std::nullopt;
    const std::optional<std::string> more = fraction_digits(rest, room);
    if (rest.may_be_zero())
      alternatives.push_back(more ? fmt::format("\"{}\" ({})?", d, *more) : fmt::format("\"{}\"", d));
    else if (more)
      alternatives.push_back(fmt::format("\"{}\" {}", d, *more));
  };
  if (first > last) return std::nullopt;
  const bool at_low = range.low.has_value(), at_high = range.high.has_value();
  if (first == last) {
    add(first, at_low, at_high);
  } else {
    if (at_low) add(first, true, false);
    const char from = at_low ? static_cast<char>(first + 1) : first;
    const char to = at_high ? static_cast<char>(last - 1) : last;
    if (from <= to) alternatives.push_back(fmt::format("{} [0-9]{{0,{}}}", digit(from, to), room));
    if (at_high) add(last, false, true);
  }
  if (alternatives.empty()) return std::nullopt;
  return any_of(alternatives);
}

/// What may follow the digits before the point.
std::optional<std::string> fraction(const FractionRange& range, size_t room) {
  const std::optional<std::string> more = fraction_digits(range, room);
  if (range.may_be_zero()) return more ? fmt::format("(\".\" {})?", *more) : "";
  return more ? std::optional(fmt::format("\".\" {}", *more)) : std::nullopt;
}

/// Numbers without a sign; `low` is not negative.
std::vector<std::string> magnitudes(const Bound& low, const std::optional<Bound>& high, bool integers) {
  std::vector<std::string> result;
  if (high) {
    const int order = compare(low.value, high->value);
    if (order > 0 || (order == 0 && (low.exclusive || high->exclusive))) return result;
  }
  if (integers) {
    const bool above = low.exclusive || !low.value.fraction.empty();
    const std::string first = above ? incremented(low.value.whole) : low.value.whole;
    std::optional<std::string> last;
    if (high) {
      const bool below = high->exclusive && high->value.fraction.empty();
      if (below && high->value.whole == "0") return result;
      last = below ? decremented(high->value.whole) : high->value.whole;
      if (less(*last, first)) return result;
    }
    result.push_back(wholes(first, last));
    return result;
  }
  const size_t size = high ? high->value.whole.size() : low.value.whole.size();
  const size_t room = size < kMaxDigits ? kMaxDigits - size : 1;
  const auto add = [&](const std::string& whole, const std::optional<std::string>& behind) {
    if (behind) result.push_back(behind->empty() ? whole : whole + " " + *behind);
  };
  FractionRange at_low{.low = low.value.fraction, .low_exclusive = low.exclusive};
  FractionRange at_high;
  if (high) at_high = {.high = high->value.fraction, .high_exclusive = high->exclusive};
  const auto quoted = [](const std::string& whole) { return "\"" + whole + "\""; };
  if (high && high->value.whole == low.value.whole) {
    at_low.high = at_high.high, at_low.high_exclusive = at_high.high_exclusive;
    add(quoted(low.value.whole), fraction(at_low, room));
    return result;
  }
  add(quoted(low.value.whole), fraction(at_low, room));
  const std::string next = incremented(low.value.whole);
  if (!high)
    add(wholes(next, {}), fraction({}, room));
  else if (less(next, high->value.whole))
    add(wholes(next, decremented(high->value.whole)), fraction({}, room));
  if (high) add(quoted(high->value.whole), fraction(at_high, room));
  return result;
}

Bound without_sign(Bound bound) {
  bound.value.negative = false;
  return bound;
}

std::optional<std::string> within(const Bounds& bounds, bool integers) {
  const Bound zero{};
  const auto is_negative = [](const Bound& b) { return b.value.negative && !b.value.is_zero(); };
  std::vector<std::string> alternatives;
  if (!bounds.low || is_negative(*bounds.low)) {
    // A negative number is a "-" and what is at least this far from zero. There is no "-0".
    const bool below_zero = bounds.high && is_negative(*bounds.high);
    const Bound nearest = below_zero ? without_sign(*bounds.high) : Bound{.exclusive = true};
    std::optional<Bound> farthest;
    if (bounds.low) farthest = without_sign(*bounds.low);
    for (const std::string& magnitude : magnitudes(nearest, farthest, integers))
      alternatives.push_back("\"-\" " + magnitude);
  }
  if (!bounds.high || !is_negative(*bounds.high)) {
    const bool above_zero = bounds.low && !is_negative(*bounds.low);
    for (std::string& magnitude : magnitudes(above_zero ? *bounds.low : zero, bounds.high, integers))
      alternatives.push_back(std::move(magnitude));
  }
  if (alternatives.empty()) return std::nullopt;
  return any_of(alternatives);
}

}  // namespace

std::optional<Decimal> Decimal::parse(std::string_view text) {
  constexpr int kMost = 300;
  Decimal result;
  result.negative = text.starts_with('-');
  const size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  std::string digits_text(text.substr(result.negative, exponent_at - result.negative));
  int exponent = 0;
  if (exponent_at < text.size()) {
    std::string_view spelt = text.substr(exponent_at + 1);
    if (spelt.starts_with('+')) spelt.remove_prefix(1);
    const auto [end, error] = std::from_chars(spelt.data(), spelt.data() + spelt.size(), exponent);
    if (error != std::errc() || std::abs(exponent) > kMost) return std::nullopt;
  }
  const size_t point = std::min(digits_text.find('.'), digits_text.size());
  if (point < digits_text.size()) digits_text.erase(point, 1);
  int whole_digits = static_cast<int>(point) + exponent;
  if (whole_digits < 0) {
    digits_text.insert(0, static_cast<size_t>(-whole_digits), '0');
    whole_digits = 0;
  }
  if (digits_text.size() < static_cast<size_t>(whole_digits))
    digits_text.resize(static_cast<size_t>(whole_digits), '0');
  if (digits_text.size() > kMost) return std::nullopt;
  result.whole = digits_text.substr(0, static_cast<size_t>(whole_digits));
  result.fraction = digits_text.substr(static_cast<size_t>(whole_digits));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole = "0";
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  return result;
}

int compare(const Decimal& a, const Decimal& b) {
  const bool a_negative = a.negative && !a.is_zero(), b_negative = b.negative && !b.is_zero();
  if (a_negative != b_negative) return a_negative ? -1 : 1;
  const int sign = a_negative ? -1 : 1;
  if (a.whole != b.whole) return less(a.whole, b.whole) ? -sign : sign;
  return a.fraction == b.fraction ? 0 : a.fraction < b.fraction ? -sign : sign;
}

std::optional<std::string> integers_within(const Bounds& bounds) {
  return within(bounds, true);
}

std::optional<std::string> numbers_within(const Bounds& bounds) {
  return within(bounds, false);
}

}  // namespace weft
