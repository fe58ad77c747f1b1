#include "llm/schema_validator.h"

#include <fmt/format.h>

#include <cmath>
#include <regex>

#include "text/utf8.h"

namespace weft::test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

bool has_type(const json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

bool equal(const ordered_json& a, const json& b) {
  return json::parse(a.dump()) == b;
}

/// By characters, not bytes.
bool finds(const std::string& pattern, const std::string& text) {
  const auto wide = [](const std::string& narrow) {
    const std::u32string codes = utf8::decode(narrow);
    return std::wstring(codes.begin(), codes.end());
  };
  return std::regex_search(wide(text), std::wregex(wide(pattern)));
}

bool matches_format(const std::string& text, const std::string& format) {
  const auto is = [&](const char* pattern) { return std::regex_match(text, std::regex(pattern)); };
  int year = 0, month = 0, day = 0;
  if (format == "date" || format == "date-time") {
    if (std::sscanf(text.c_str(), "%4d-%2d-%2d", &year, &month, &day) != 3) return false;
    const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12 || day < 1 || day > days[month - 1]) return false;
    return format == "date" ? text.size() == 10 : text[10] == 'T' && matches_format(text.substr(11), "time");
  }
  if (format == "time") {
    int hour = 0, minute = 0, second = 0;
    return std::sscanf(text.c_str(), "%2d:%2d:%2d", &hour, &minute, &second) == 3 && hour < 24 &&
           minute < 60 && second < 60 && is(".{8}(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)");
  }
  if (format == "ipv4") {
    int a = 0, b = 0, c = 0, d = 0;
    return std::sscanf(text.c_str(), "%d.%d.%d.%d", &a, &b, &c, &d) == 4 && std::max({a, b, c, d}) < 256 &&
           is("[0-9.]+") && fmt::format("{}.{}.{}.{}", a, b, c, d) == text;
  }
  if (format == "uuid")
    return text.size() == 36 && is("[0-9a-f]+(-[0-9a-f]+){4}") && text[8] == '-' && text[23] == '-';
  if (format == "email") return is("[^@ ]+@[a-z0-9-]+(\\.[a-z0-9-]+)+");
  if (format == "hostname") return is("[a-z0-9.-]+");
  return false;
}

class Validator {
 public:
  explicit Validator(const ordered_json& root) : root_(root) {}

  std::string check(const ordered_json& schema, const json& value) {
    if (schema.is_boolean()) return schema == true ? "" : "false";
    if (schema.value("nullable", false) && value.is_null()) return "";
    for (const auto& [key, rule] : schema.items())
      if (std::string why = keyword(schema, key, rule, value); !why.empty())
        return fmt::format("{}: {} ({})", key, why, value.dump());
    return "";
  }

 private:
  std::string keyword(const ordered_json& schema, const std::string& key, const ordered_json& rule,
                      const json& value) {
    const auto need = [](bool holds) { return std::string(holds ? "" : "does not hold"); };
    if (key == "$ref")
      return check(root_.at(ordered_json::json_pointer(rule.get<std::string>().substr(1))), value);
    if (key == "type") {
      bool any = false;
      for (const ordered_json& type : rule.is_array() ? rule : ordered_json::array({rule}))
        any |= has_type(value, type);
      return need(any);
    }
    if (key == "const") return need(equal(rule, value));
    if (key == "enum")
      return need(
          std::any_of(rule.begin(), rule.end(), [&](const ordered_json& one) { return equal(one, value); }));
    if (key == "anyOf" || key == "oneOf") {
      int valid = 0;
      for (const ordered_json& one : rule) valid += check(one, value).empty();
      return need(key == "anyOf" ? valid > 0 : valid == 1);
    }
    if (key == "allOf") {
      for (const ordered_json& one : rule)
        if (std::string why = check(one, value); !why.empty()) return why;
      return "";
    }
    if (value.is_number()) return need(number(key, rule, value.get<double>()));
    if (value.is_string()) return need(string(key, rule, value));
    if (value.is_array()) return array(schema, key, rule, value);
    if (value.is_object()) return object(schema, key, rule, value);
    return "";
  }

  static bool number(const std::string& key, const ordered_json& rule, double x) {
    if (key == "minimum") return x >= rule.get<double>();
    if (key == "maximum") return x <= rule.get<double>();
    if (key == "exclusiveMinimum") return x > rule.get<double>();
    if (key == "exclusiveMaximum") return x < rule.get<double>();
    return true;
  }

  static bool string(const std::string& key, const ordered_json& rule, const std::string& text) {
    const size_t length = utf8::decode(text).size();
    if (key == "minLength") return length >= rule.get<size_t>();
    if (key == "maxLength") return length <= rule.get<size_t>();
    if (key == "pattern") return finds(rule.get<std::string>(), text);
    if (key == "format") return matches_format(text, rule);
    return true;
  }

  std::string array(const ordered_json& schema, const std::string& key, const ordered_json& rule,
                    const json& value) {
    if (key == "minItems") return value.size() >= rule.get<size_t>() ? "" : "too few";
    if (key == "maxItems") return value.size() <= rule.get<size_t>() ? "" : "too many";
    const size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (key == "prefixItems" || key == "items")
      for (size_t i = 0; i < value.size(); ++i) {
        if ((key == "items") != (i >= first)) continue;
        if (std::string why = check(key == "items" ? rule : rule[i], value[i]); !why.empty()) return why;
      }
    return "";
  }

  std::string object(const ordered_json& schema, const std::string& key, const ordered_json& rule,
                     const json& value) {
    if (key == "minProperties") return value.size() >= rule.get<size_t>() ? "" : "too few";
    if (key == "maxProperties") return value.size() <= rule.get<size_t>() ? "" : "too many";
    if (key == "required")
      for (const std::string name : rule)
        if (!value.contains(name)) return name + " is missing";
    for (const auto& [name, property] : value.items()) {
      const bool named = schema.contains("properties") && schema["properties"].contains(name);
      bool matched = false;
      if (schema.contains("patternProperties"))
        for (const auto& [pattern, unused] : schema["patternProperties"].items())
          matched |= finds(pattern, name);
      std::string why;
      if (key == "properties" && named) why = check(rule[name], property);
      if (key == "patternProperties")
        for (const auto& [pattern, one] : rule.items())
          if (finds(pattern, name) && why.empty()) why = check(one, property);
      if (key == "additionalProperties" && !named && !matched) why = check(rule, property);
      if (!why.empty()) return name + ": " + why;
    }
    return "";
  }

  const ordered_json& root_;
};

}  // namespace

std::string why_invalid(const ordered_json& schema, const json& value, const ordered_json& root) {
  return Validator(root).check(schema, value);
}

}  // namespace weft::test
