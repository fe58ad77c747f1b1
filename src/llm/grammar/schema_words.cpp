#include "llm/grammar/schema_words.h"

#include <algorithm>
#include <array>

namespace weft::schema {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 19> kTypes = {{
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
}};

constexpr std::array<std::string_view, 8> kCommon = {"type",  "enum",  "const", "anyOf",
                                                     "oneOf", "allOf", "$ref",  "nullable"};

constexpr std::array<std::string_view, 19> kAnnotations = {
    "title",        "description", "default",  "examples",    "example",          "$schema",
    "$id",          "id",          "$comment", "$defs",       "definitions",      "deprecated",
    "readOnly",     "writeOnly",   "$anchor",  "$vocabulary", "contentMediaType", "contentEncoding",
    "discriminator"};

// Spaces are few: a model must not fill its context with them. Numbers have no more digits and no larger
// exponents than a double holds; escapes of surrogates come in pairs.
constexpr std::array<Rule, 12> kBasicRules = {{
    {"ws", R"(| " " | "\n" [ \t]{0,20})"},
    {"value", R"(object | array | string | number | boolean | null)"},
    {"object", R"("{" ws (string ":" ws value ws ("," ws string ":" ws value ws)*)? "}")"},
    {"array", R"("[" ws (value ws ("," ws value ws)*)? "]")"},
    {"string", R"("\"" char* "\"")"},
    {"char", R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" unit))"},
    {"unit",
     R"([0-9a-cA-Ce-fE-F] hex{3} | [dD] [0-7] hex{2} | [dD] [89abAB] hex{2} "\\u" [dD] [c-fC-F] hex{2})"},
    {"hex", R"([0-9a-fA-F])"},
    {"integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
    {"number", R"(integer ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?)"},
    {"boolean", R"("true" | "false")"},
    {"null", R"("null")"},
}};

}  // namespace

std::span<const Rule> basic_rules() {
  return kBasicRules;
}

std::optional<std::string> pattern_of_format(std::string_view name) {
  const std::string date =
      "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8]))";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  const std::string label = "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?";
  const std::string word = "[A-Za-z0-9_+-]{1,30}";
  const std::string segment = "(/[A-Za-z0-9._~-]{1,60})";
  const std::pair<std::string_view, std::string> formats[] = {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"duration", "P([0-9]{1,4}D(T[0-9]{1,4}[HMS])?|[0-9]{1,4}[YMW]|T[0-9]{1,4}[HMS])"},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
      {"ipv4", "(" + byte + "\\.){3}" + byte},
      {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
      {"hostname", label + "(\\." + label + "){0,4}"},
      {"email", word + "(\\." + word + ")?@" + label + "(\\." + label + "){1,3}"},
      {"uri", "https?://" + label + "(\\." + label + "){0,4}(:[1-9][0-9]{0,3})?" + segment + "{0,8}"},
      {"uri-reference", segment + "{1,8}"},
  };
  if (name == "password") return "";
  const auto found = std::ranges::find(formats, name, [](const auto& row) { return row.first; });
  if (found == std::end(formats)) return std::nullopt;
  return "^(" + found->second + ")$";
}

bool is_keyword(std::string_view name) {
  return std::ranges::find(kCommon, name) != kCommon.end() || !type_of_keyword(name).empty();
}

bool is_annotation(std::string_view name) {
  return std::ranges::find(kAnnotations, name) != kAnnotations.end() || name.starts_with("x-");
}

std::string_view type_of_keyword(std::string_view keyword) {
  const auto found = std::ranges::find(kTypes, keyword, [](const auto& row) { return row.first; });
  return found == kTypes.end() ? "" : found->second;
}

}  // namespace weft::schema
