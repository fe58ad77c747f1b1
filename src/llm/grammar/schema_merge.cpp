#include "llm/grammar/schema_merge.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "io/safetensors.h"
#include "llm/grammar/schema_words.h"

namespace weft {
namespace {

/// The types of a schema as a list; empty: any.
std::vector<std::string> types_of(const Schema& schema) {
  std::vector<std::string> types;
  const auto type = schema.find("type");
  if (type == schema.end()) return types;
  for (const Schema& one : type->is_array() ? *type : Schema::array({*type}))
    if (one.is_string()) types.push_back(one);
  return types;
}

bool has(const Schema& list, const Schema& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool overlaps(const std::string& a, const std::string& b) {
  return a == b || (a == "integer" && b == "number") || (a == "number" && b == "integer");
}

/// The values that are listed by enum or const; empty: it is no such schema.
std::vector<Schema> values_of(const Schema& schema) {
  if (schema.contains("const")) return {schema["const"]};
  const auto list = schema.find("enum");
  return list != schema.end() && list->is_array() ? list->get<std::vector<Schema>>() : std::vector<Schema>{};
}

bool contains(const std::vector<Schema>& list, const Schema& value) {
  return std::ranges::find(list, value) != list.end();
}

Schema merge_types(const Schema& a, const Schema& b, std::string_view where) {
  Schema result = Schema::array();
  for (const std::string& x : types_of({{"type", a}}))
    for (const std::string& y : types_of({{"type", b}}))
      if (overlaps(x, y)) {
        const std::string& narrow = x == "number" ? y : x;
        if (!has(result, narrow)) result.push_back(narrow);
      }
  if (result.empty()) fail(ErrorKind::invalid, "[json schema] {}: no value has all of its types", where);
  return result;
}

bool is_false(const Schema& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found != schema.end() && *found == false;
}

/// Properties that one schema has and the other one, which has no room for others, has not.
void check_closed(const Schema& closed, const Schema& other, std::string_view where) {
  if (!is_false(closed, "additionalProperties") || !other.contains("properties")) return;
  for (const auto& [name, unused] : other["properties"].items())
    if (!closed.contains("properties") || !closed["properties"].contains(name))
      fail(ErrorKind::unsupported,
           "[json schema] {}: '{}' is a property of one part, and another part has additionalProperties: "
           "false",
           where, one_line(name));
}

}  // namespace

Schema merge_schemas(const Schema& a, const Schema& b, std::string_view where) {
  if (a == true || a.empty()) return b;
  if (b == true || b.empty()) return a;
  if (!a.is_object() || !b.is_object())
    fail(ErrorKind::invalid, "[json schema] {}: no value is valid", where);
  check_closed(a, b, where);
  check_closed(b, a, where);
  Schema result = a;
  for (const auto& [key, value] : b.items()) {
    const auto found = result.find(key);
    if (found == result.end() || schema::is_annotation(key)) {
      if (found == result.end()) result[key] = value;
      continue;
    }
    Schema& mine = *found;
    if (mine == value) continue;
    constexpr std::array<std::string_view, 6> kLower = {"minimum",  "exclusiveMinimum", "minLength",
                                                        "minItems", "minProperties",    "minContains"};
    constexpr std::array<std::string_view, 5> kUpper = {"maximum", "exclusiveMaximum", "maxLength",
                                                        "maxItems", "maxProperties"};
    const bool numbers = mine.is_number() && value.is_number();
    if (numbers && std::ranges::count(kLower, key)) {
      mine = std::max(mine, value);
    } else if (numbers && std::ranges::count(kUpper, key)) {
      mine = std::min(mine, value);
    } else if (key == "type") {
      mine = merge_types(mine, value, where);
    } else if (key == "properties" && mine.is_object() && value.is_object()) {
      for (const auto& [name, property] : value.items())
        mine[name] = mine.contains(name) ? merge_schemas(mine[name], property, where) : property;
    } else if (key == "required" && mine.is_array() && value.is_array()) {
      for (const Schema& name : value)
        if (!has(mine, name)) mine.push_back(name);
    } else if (key == "items" || key == "additionalProperties") {
      mine = mine == false || value == false ? Schema(false) : merge_schemas(mine, value, where);
    } else if (key == "enum" && mine.is_array() && value.is_array()) {
      Schema both = Schema::array();
      for (const Schema& one : mine)
        if (has(value, one)) both.push_back(one);
      if (both.empty())
        fail(ErrorKind::invalid, "[json schema] {}: the enums have no value in common", where);
      mine = both;
    } else {
      fail(ErrorKind::unsupported, "[json schema] {}: '{}' in several parts of it is not supported", where,
           one_line(key));
    }
  }
  return result;
}

bool are_disjoint(const Schema& a, const Schema& b) {
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object()) return false;
  const std::vector<std::string> a_types = types_of(a), b_types = types_of(b);
  if (!a_types.empty() && !b_types.empty() && std::ranges::none_of(a_types, [&](const std::string& x) {
        return std::ranges::any_of(b_types, [&](const std::string& y) { return overlaps(x, y); });
      }))
    return true;
  const std::vector<Schema> a_values = values_of(a), b_values = values_of(b);
  if (!a_values.empty() && !b_values.empty())
    return std::ranges::none_of(a_values, [&](const Schema& value) { return contains(b_values, value); });
  // Objects: a property that both must have and that tells them apart, or one that each must have and the
  // other one, as we write it, never has.
  const auto object = std::vector<std::string>{"object"};
  if (a_types != object || b_types != object) return false;
  const auto requires_key = [](const Schema& schema, const std::string& name) {
    const auto list = schema.find("required");
    return list != schema.end() && has(*list, name);
  };
  const auto property = [](const Schema& schema, const std::string& name) {
    const auto list = schema.find("properties");
    return list == schema.end() || !list->contains(name) ? Schema() : (*list)[name];
  };
  const auto lacks_one_of = [&](const Schema& has_not, const Schema& other) {
    const auto list = other.find("required");
    const auto more = has_not.find("additionalProperties");
    const bool is_open = !has_not.contains("properties") || has_not.contains("patternProperties") ||
                         (more != has_not.end() && *more != false);
    return !is_open && list != other.end() &&
           std::any_of(list->begin(), list->end(), [&](const Schema& name) {
             return name.is_string() && property(has_not, name).is_null() && !requires_key(has_not, name);
           });
  };
  if (lacks_one_of(a, b) && lacks_one_of(b, a)) return true;
  const auto list = a.find("required");
  return list != a.end() && std::any_of(list->begin(), list->end(), [&](const Schema& name) {
           return name.is_string() && requires_key(b, name) &&
                  are_disjoint(property(a, name), property(b, name));
         });
}

}  // namespace weft
