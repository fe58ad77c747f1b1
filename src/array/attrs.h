#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

/// "Not given" inside a list, as Python's None in x[:3].
inline constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

/// monostate = not given.
using AttrValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>>;

/// Attributes of one call of an op, by name.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

  void set(const std::string& name, AttrValue value) { values_[name] = std::move(value); }
  bool has(std::string_view name) const;  ///< present and not monostate

  // Each throws ErrorKind::invalid when the attribute is missing or of another type.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  ///< an integer is a number too, and true is 1
  const std::string& text(std::string_view name) const;
  const std::vector<int64_t>& list(std::string_view name) const;

  const std::map<std::string, AttrValue, std::less<>>& values() const { return values_; }

 private:
  const AttrValue& at(std::string_view name) const;
  std::map<std::string, AttrValue, std::less<>> values_;
};

}  // namespace weft
