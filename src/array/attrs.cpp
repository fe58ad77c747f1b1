#include "array/attrs.h"

#include "base/error.h"

namespace weft {
namespace {

template <typename T>
const T& as(const AttrValue& value, std::string_view name, const char* type) {
  const T* typed = std::get_if<T>(&value);
  if (!typed) fail(ErrorKind::invalid, "[attrs] '{}' is not {}", name, type);
  return *typed;
}

}  // namespace

bool Attrs::has(std::string_view name) const {
  const auto found = values_.find(name);
  return found != values_.end() && !std::holds_alternative<std::monostate>(found->second);
}

const AttrValue& Attrs::at(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) fail(ErrorKind::invalid, "[attrs] '{}' is missing", name);
  return found->second;
}

bool Attrs::flag(std::string_view name) const {
  return as<bool>(at(name), name, "true or false");
}
int64_t Attrs::integer(std::string_view name) const {
  return as<int64_t>(at(name), name, "a whole number");
}

double Attrs::number(std::string_view name) const {
  const AttrValue& value = at(name);
  if (const int64_t* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const bool* truth = std::get_if<bool>(&value)) return static_cast<double>(*truth);
  return as<double>(value, name, "a number");
}

const std::string& Attrs::text(std::string_view name) const {
  return as<std::string>(at(name), name, "a text");
}
const std::vector<int64_t>& Attrs::list(std::string_view name) const {
  return as<std::vector<int64_t>>(at(name), name, "a list of whole numbers");
}

}  // namespace weft
