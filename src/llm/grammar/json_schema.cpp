#include "llm/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "io/safetensors.h"
#include "llm/grammar/number_grammar.h"
#include "llm/grammar/pattern_grammar.h"
#include "llm/grammar/schema_merge.h"
#include "llm/grammar/schema_words.h"
#include "text/regex.h"
#include "text/utf8.h"

namespace weft {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxSize = 8 << 20;  // of the grammar

bool has_type(const Schema& value, std::string_view type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

class Converter {
 public:
  explicit Converter(const Schema& schema) : schema_(schema) {}

  std::string convert() {
    const std::string root = visit(schema_, "");
    std::string result = "root ::= " + root + "\n";
    for (const auto& [name, body] : rules_) result += name + " ::= " + body + "\n";
    return result;
  }

 private:
  [[noreturn]] static void wrong(std::string_view where, std::string_view what) {
    fail(ErrorKind::invalid, "[json schema] {}: {}", place(where), what);
  }
  [[noreturn]] static void unsupported(std::string_view where, std::string_view what) {
    fail(ErrorKind::unsupported, "[json schema] {}: {} not supported", place(where), what);
  }
  static std::string place(std::string_view where) { return where.empty() ? "at the top" : one_line(where); }

  static std::string dumped(const Schema& value) {
    return value.dump(-1, ' ', false, Schema::error_handler_t::replace);
  }

  /// A rule's name for an expression; equal ones share a rule.
  std::string rule(const std::string& body) {
    const auto [at, added] = names_.try_emplace(body, "");
    if (added) {
      at->second = fmt::format("r{}", names_.size());
      define(at->second, body);
    }
    return at->second;
  }

  void define(const std::string& name, const std::string& body) {
    size_ += name.size() + body.size();
    if (size_ > kMaxSize) fail(ErrorKind::unsupported, "[json schema] the grammar would be larger than 8 MB");
    rules_[name] = body;
  }

  /// A basic rule, and those that it is made of.
  std::string basic(std::string_view name) {
    const std::string key(name);
    if (rules_.contains(key)) return key;
    const auto found = std::ranges::find(schema::basic_rules(), name, &schema::Rule::name);
    define(key, std::string(found->body));
    for (const schema::Rule& other : schema::basic_rules())
      if (found->body.find(other.name) != std::string_view::npos) basic(other.name);
    return key;
  }

  /// An expression for the values that are valid.
  std::string visit(const Schema& schema, const std::string& where) {
    if (++depth_ > kMaxDepth) unsupported(where, "nesting as deep as this is");
    std::string result = alternatives(schema, where);
    --depth_;
    return result;
  }

  std::string alternatives(const Schema& schema, const std::string& where) {
    if (schema == true || (schema.is_object() && schema.empty())) return basic("value");
    if (schema == false) wrong(where, "no value is valid");
    if (!schema.is_object()) wrong(where, "a schema is an object, true or false");
    for (const auto& [key, value] : schema.items()) check_keyword(key, value, where);

    if (schema.contains("$ref")) return reference(schema, where);
    for (const char* key : {"allOf", "anyOf", "oneOf"})
      if (schema.contains(key))
        return shared(dumped(schema), where, [&] { return combination(schema, key, where); });
    std::string result = plain(schema, where);
    if (is_true(schema, "nullable")) result = fmt::format("({} | {})", result, basic("null"));
    return result;
  }

  static bool is_true(const Schema& schema, const char* key) {
    const auto found = schema.find(key);
    return found != schema.end() && *found == true;
  }

  static void check_keyword(const std::string& key, const Schema& value, const std::string& where) {
    if (schema::is_annotation(key) || schema::is_keyword(key)) return;
    if (key == "uniqueItems" && value == false) return;
    if (key == "unevaluatedProperties" && value == true) return;
    unsupported(where, fmt::format("'{}' is", one_line(key)));
  }

  // References and combinations.

  /// The other keywords of a schema.
  static Schema without(const Schema& schema, const char* key) {
    Schema rest = Schema::object();
    for (const auto& [name, value] : schema.items())
      if (name != key && !schema::is_annotation(name)) rest[name] = value;
    return rest;
  }

  const Schema& target(const Schema& ref, const std::string& where) const {
    if (!ref.is_string()) wrong(where, "'$ref' is not a text");
    const std::string text = ref;
    if (!text.starts_with('#'))
      unsupported(where, fmt::format("'$ref' to '{}', another document, is", one_line(text)));
    try {
      const Schema* found = &schema_;
      if (text != "#") found = &schema_.at(Schema::json_pointer(percent_decoded(text.substr(1))));
      return *found;
    } catch (const Schema::exception&) {
      wrong(where, fmt::format("'$ref': there is no '{}'", one_line(text)));
    }
  }

  static std::string percent_decoded(const std::string& text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool hex = text[i] == '%' && i + 2 < text.size() &&
                       std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                       std::isxdigit(static_cast<unsigned char>(text[i + 2]));
      result += hex ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
      if (hex) i += 2;
    }
    return result;
  }

  /// A rule that may be inside itself, made once for each key.
  template <typename Make>
  std::string shared(const std::string& key, const std::string& where, const Make& make) {
    if (std::ranges::find(open_, key) != open_.end())
      wrong(where, fmt::format("{} is nothing but itself", one_line(key)));
    const auto [at, added] = references_.try_emplace(key, fmt::format("s{}", references_.size()));
    const std::string name = at->second;
    if (added) {
      open_.push_back(key);
      define(name, make());
      open_.pop_back();
    }
    return name;
  }

  std::string reference(const Schema& schema, const std::string& where) {
    const Schema rest = without(schema, "$ref");
    const Schema& found = target(schema["$ref"], where);
    const std::string text = schema["$ref"];
    if (rest.empty()) return shared(text, where, [&] { return visit(found, text); });
    return shared(text + " with " + dumped(rest), where,
                  [&] { return visit(merge_schemas(resolved(found, where), rest, place(where)), where); });
  }

  /// A schema that is not only a reference.
  Schema resolved(const Schema& schema, const std::string& where) const {
    Schema result = schema;
    for (int hops = 0; result.is_object() && result.contains("$ref"); ++hops) {
      if (hops == kMaxDepth) wrong(where, "'$ref' goes in a circle");
      const Schema found = target(result["$ref"], where);
      result.erase("$ref");
      result = merge_schemas(found, result, place(where));
    }
    return result;
  }

  std::string combination(const Schema& schema, const char* key, const std::string& where) {
    const Schema& list = schema[key];
    if (!list.is_array() || list.empty()) wrong(where, fmt::format("'{}' is not a list of schemas", key));
    const Schema rest = without(schema, key);
    if (std::string_view(key) == "allOf") {
      Schema all = rest;
      for (const Schema& one : list) all = merge_schemas(all, flattened(one, where, 0), place(where));
      return visit(all, where);
    }
    constexpr size_t kMaxOneOf = 500;  // each is compared with each
    if (std::string_view(key) == "oneOf" && list.size() > kMaxOneOf)
      unsupported(where, fmt::format("'oneOf' with more than {} alternatives is", kMaxOneOf));
    if (std::string_view(key) == "oneOf") check_disjoint(list, rest, where);
    std::string result;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string inside = fmt::format("{}/{}/{}", where, key, i);
      const std::string one =
          rest.empty() ? visit(list[i], inside)
                       : visit(merge_schemas(rest, resolved(list[i], inside), place(inside)), inside);
      result += (i == 0 ? "(" : " | ") + one;
    }
    return result + ")";
  }

  /// Without a reference or an allOf at its top.
  Schema flattened(const Schema& schema, const std::string& where, int depth) {
    if (depth > kMaxDepth) wrong(where, "'allOf' goes in a circle");
    Schema result = resolved(schema, where);
    if (!result.is_object() || !result.contains("allOf")) return result;
    const Schema list = result["allOf"];
    result.erase("allOf");
    for (const Schema& one : list)
      result = merge_schemas(result, flattened(one, where, depth + 1), place(where));
    return result;
  }

  void check_disjoint(const Schema& list, const Schema& rest, const std::string& where) {
    std::vector<Schema> all;
    for (const Schema& one : list) all.push_back(merge_schemas(rest, flattened(one, where, 0), place(where)));
    for (Schema& one : all)
      if (one.is_object() && one.contains("properties") && one["properties"].is_object())
        for (auto& property : one["properties"]) property = resolved(property, where);
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        if (!are_disjoint(all[i], all[k]))
          unsupported(where, fmt::format("'oneOf' whose alternatives {} and {} may both be valid is", k, i));
  }

  // Values.

  std::string plain(const Schema& schema, const std::string& where) {
    if (schema.contains("const") || schema.contains("enum")) return listed_values(schema, where);
    std::vector<std::string> types;
    if (schema.contains("type")) {
      const Schema& type = schema["type"];
      for (const Schema& one : type.is_array() ? type : Schema::array({type})) {
        if (!one.is_string()) wrong(where, "'type' is not a text");
        types.push_back(one);
      }
    } else {
      for (const auto& [key, value] : schema.items()) {
        const std::string type(schema::type_of_keyword(key));
        if (!type.empty() && std::ranges::find(types, type) == types.end()) types.push_back(type);
      }
      if (types.empty()) return basic("value");
    }
    if (types.empty()) wrong(where, "'type' is an empty list");
    std::string result;
    for (const std::string& type : types)
      result += (result.empty() ? "" : " | ") + value_of_type(schema, type, where);
    return types.size() == 1 ? result : "(" + result + ")";
  }

  std::string value_of_type(const Schema& schema, const std::string& type, const std::string& where) {
    if (type == "object") return object(schema, where);
    if (type == "array") return array(schema, where);
    if (type == "string") return string(schema, where);
    if (type == "number" || type == "integer") return number(schema, type, where);
    if (type == "boolean" || type == "null") return basic(type);
    wrong(where, fmt::format("there is no type '{}'", one_line(type)));
  }

  std::string listed_values(const Schema& schema, const std::string& where) {
    for (const auto& [key, value] : schema.items())
      if (!schema::type_of_keyword(key).empty())
        unsupported(where, fmt::format("'{}' beside 'enum' or 'const' is", one_line(key)));
    if (schema.contains("enum") && !schema["enum"].is_array()) wrong(where, "'enum' is not a list");
    std::string result;
    const auto add = [&](const Schema& value) {
      if (schema.contains("type")) {
        const Schema& type = schema["type"];
        bool fits = false;
        for (const Schema& one : type.is_array() ? type : Schema::array({type}))
          fits = fits || (one.is_string() && has_type(value, one.get<std::string>()));
        if (!fits) return;
      }
      result += (result.empty() ? "(" : " | ") + gbnf_literal(dumped(value));
    };
    if (schema.contains("const")) {
      const auto list = schema.find("enum");
      if (list == schema.end() || std::find(list->begin(), list->end(), schema["const"]) != list->end())
        add(schema["const"]);
    } else {
      for (const Schema& value : schema["enum"]) add(value);
    }
    if (result.empty()) wrong(where, "no value is valid");
    return rule(result + ")");
  }

  std::optional<size_t> count(const Schema& schema, const char* key, const std::string& where) const {
    const auto found = schema.find(key);
    if (found == schema.end()) return std::nullopt;
    if (!found->is_number_unsigned() && !(found->is_number_float() && *found >= 0 && *found <= 1e9 &&
                                          found->get<double>() == static_cast<double>(found->get<int64_t>())))
      wrong(where, fmt::format("'{}' is not a count", key));
    return found->get<size_t>();
  }

  std::string string(const Schema& schema, const std::string& where) {
    const LengthLimits limits{count(schema, "minLength", where).value_or(0),
                              count(schema, "maxLength", where)};
    if (limits.max && *limits.max < limits.min) wrong(where, "'maxLength' is less than 'minLength'");
    const auto text = [&](const char* key) {
      if (!schema[key].is_string()) wrong(where, fmt::format("'{}' is not a text", key));
      return schema[key].get<std::string>();
    };
    std::string pattern;
    if (schema.contains("format")) {
      const std::string name = text("format");
      const std::optional<std::string> known = schema::pattern_of_format(name);
      if (!known) unsupported(where, fmt::format("the format '{}' is", one_line(name)));
      pattern = *known;
    }
    if (schema.contains("pattern")) {
      if (!pattern.empty()) unsupported(where, "'pattern' beside 'format' is");
      pattern = text("pattern");
    }
    if (!pattern.empty())
      return rule(fmt::format("\"\\\"\" {} \"\\\"\"",
                              strings_matching(pattern, limits, basic("char"), place(where))));
    if (limits.min == 0 && !limits.max) return basic("string");
    return rule(fmt::format("\"\\\"\" {}{} \"\\\"\"", basic("char"), repetition(limits.min, limits.max)));
  }

  static std::string repetition(size_t min, const std::optional<size_t>& max) {
    return max ? fmt::format("{{{},{}}}", min, *max) : fmt::format("{{{},}}", min);
  }

  /// Keeps the bound that leaves fewer numbers; `tighter` is how such a one compares with the other.
  static void tighten(std::optional<Bound>& bound, const Bound& other, int tighter) {
    const int order = bound ? compare(other.value, bound->value) : tighter;
    if (order == tighter || (order == 0 && other.exclusive)) bound = other;
  }

  std::string number(const Schema& schema, const std::string& type, const std::string& where) {
    Bounds bounds;
    const auto read = [&](const char* key, const char* exclusive_key, std::optional<Bound>& bound,
                          int tighter) {
      const auto one = [&](const char* name, bool exclusive) {
        const auto found = schema.find(name);
        if (found == schema.end() || found->is_boolean()) return;
        const std::optional<Decimal> value =
            found->is_number() ? Decimal::parse(found->dump()) : std::nullopt;
        if (!value) wrong(where, fmt::format("'{}' is not a number that can be used", name));
        tighten(bound, {*value, exclusive}, tighter);
      };
      one(key, is_true(schema, exclusive_key));  // draft 4 has truths
      one(exclusive_key, true);
    };
    read("minimum", "exclusiveMinimum", bounds.low, 1);
    read("maximum", "exclusiveMaximum", bounds.high, -1);
    if (const auto format = schema.find("format"); format != schema.end()) {
      if (*format == "int32") {
        tighten(bounds.low, {{.negative = true, .whole = "2147483648"}}, 1);
        tighten(bounds.high, {{.whole = "2147483647"}}, -1);
      } else if (*format != "int64" && *format != "float" && *format != "double") {
        unsupported(where, fmt::format("the format {} of a number is", one_line(format->dump())));
      }
    }
    if (!bounds.low && !bounds.high) return basic(type);
    const std::optional<std::string> expression =
        type == "integer" ? integers_within(bounds) : numbers_within(bounds);
    if (!expression) wrong(where, "no number is within the bounds");
    return rule(*expression);
  }

  std::string array(const Schema& schema, const std::string& where) {
    const std::vector<std::string> open = std::exchange(open_, {});
    size_t min = count(schema, "minItems", where).value_or(0);
    std::optional<size_t> max = count(schema, "maxItems", where);
    if (max && *max < min) wrong(where, "'maxItems' is less than 'minItems'");
    // Before 2020 a tuple was a list in "items", what follows it in "additionalItems".
    const bool old = schema.contains("items") && schema["items"].is_array();
    const char* first_key = old ? "items" : "prefixItems";
    const char* rest_key = old ? "additionalItems" : "items";
    std::vector<std::string> first;
    if (schema.contains(first_key)) {
      if (!schema[first_key].is_array()) wrong(where, fmt::format("'{}' is not a list", first_key));
      for (const Schema& item : schema[first_key]) {
        if (max && first.size() == *max) break;
        first.push_back(visit(item, fmt::format("{}/{}/{}", where, first_key, first.size())));
      }
    }
    const Schema any = true;
    const Schema& rest = schema.contains(rest_key) ? schema[rest_key] : any;
    // A tuple goes on only where that is asked for.
    const bool goes_on = rest != false && (first.empty() || schema.contains(rest_key) || min > first.size());
    if (!goes_on && min > first.size()) wrong(where, "'minItems' asks for more items than there may be");

    const std::string ws = basic("ws");
    std::string items;
    for (const std::string& item : first)
      items += fmt::format("{}{} {} ", items.empty() ? "" : "\",\" ws ", item, ws);
    min -= std::min(min, first.size());
    if (max) *max -= std::min(*max, first.size());
    if (goes_on && max != 0) {
      const std::string item =
          rule(fmt::format("{} {}", visit(rest, fmt::format("{}/{}", where, rest_key)), ws));
      if (!first.empty()) {
        items += fmt::format("(\",\" ws {}){}", item, repetition(min, max));
      } else {
        const auto more = max ? std::optional(*max - 1) : max;
        items = fmt::format("({} (\",\" ws {}){}){}", item, item, repetition(min > 0 ? min - 1 : 0, more),
                            min > 0 ? "" : "?");
      }
    }
    open_ = open;
    return rule(fmt::format("\"[\" {} {} \"]\"", ws, items));
  }

  // Objects.

  std::string object(const Schema& schema, const std::string& where) {
    const std::vector<std::string> open = std::exchange(open_, {});
    const std::string ws = basic("ws");
    const bool named = schema.contains("properties");
    if (named && !schema["properties"].is_object()) wrong(where, "'properties' is not an object");
    std::set<std::string> required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) wrong(where, "'required' is not a list");
      for (const Schema& name : schema["required"]) {
        if (!name.is_string()) wrong(where, "'required' is not a list of names");
        required.insert(name);
      }
    }
    struct Pair {
      std::string expression;
      bool required;
    };
    std::vector<Pair> pairs;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const Schema& value, const std::string& inside,
                         bool is_required) {
      names.push_back(name);
      pairs.push_back({fmt::format("{} {}", gbnf_literal(dumped(name) + ":"),
                                   rule(fmt::format("{} {} {}", ws, visit(value, inside), ws))),
                       is_required});
    };
    if (named)
      for (const auto& [name, value] : schema["properties"].items()) {
        if (value == false && !required.contains(name)) {
          names.push_back(name);
          continue;
        }
        add(name, value, fmt::format("{}/properties/{}", where, name), required.contains(name));
      }
    const auto additional = schema.find("additionalProperties");
    const Schema other = additional == schema.end() ? Schema(true) : *additional;
    if (schema.contains("required"))
      for (const Schema& name : schema["required"])
        if (std::ranges::find(names, name.get<std::string>()) == names.end())
          add(name, other, where + "/additionalProperties", true);

    const std::string more = others(schema, other, names, where);
    const std::optional<size_t> min = count(schema, "minProperties", where),
                                max = count(schema, "maxProperties", where);
    const bool map_only = pairs.empty() && !more.empty();
    if (min && *min > required.size() && !(map_only && *min == 1))
      unsupported(where, "'minProperties' above the number of required properties is");
    if (max && !map_only && (*max < pairs.size() || !more.empty()))
      unsupported(where, "'maxProperties' here is");

    // From the back to the front: what may follow a pair.
    const bool some = map_only && min == 1;
    std::string behind = more.empty() ? "" : fmt::format("(\",\" ws {})*", more);
    if (map_only && max) behind = fmt::format("(\",\" ws {}){{0,{}}}", more, *max > 0 ? *max - 1 : 0);
    // The first pair is any one up to the first that is required.
    std::string first;
    bool may_be_empty = required.empty() && !some;
    if (!more.empty() && required.empty() && max != 0) first = fmt::format("{} {}", more, behind);
    const auto needed = std::ranges::find_if(pairs, &Pair::required);
    for (size_t i = pairs.size(); i-- > 0;) {
      if (i <= static_cast<size_t>(needed - pairs.begin()))
        first = fmt::format("{} {}{}{}", pairs[i].expression, behind, first.empty() ? "" : " | ", first);
      behind =
          rule(fmt::format("(\",\" ws {}){} {}", pairs[i].expression, pairs[i].required ? "" : "?", behind));
    }
    open_ = open;
    const std::string inside = first.empty() ? "" : fmt::format("({}){}", first, may_be_empty ? "?" : "");
    return rule(fmt::format("\"{{\" {} {} \"}}\"", ws, inside));
  }

  /// A pair with a name that the schema does not have; "" where there may be none.
  std::string others(const Schema& schema, const Schema& other, const std::vector<std::string>& names,
                     const std::string& where) {
    const bool open = !schema.contains("properties") && !schema.contains("additionalProperties");
    const bool asked_for = schema.contains("additionalProperties") && other != false;
    const auto pair = [&](const std::string& key, const Schema& value, const std::string& inside) {
      return rule(fmt::format("{} \":\" ws {} ws", key, visit(value, inside)));
    };
    if (schema.contains("patternProperties")) {
      const Schema& patterns = schema["patternProperties"];
      if (!patterns.is_object()) wrong(where, "'patternProperties' is not an object");
      if (patterns.size() > 1) unsupported(where, "more than one pattern in 'patternProperties' is");
      if (asked_for) unsupported(where, "'additionalProperties' beside 'patternProperties' is");
      for (const auto& [pattern, value] : patterns.items()) {
        for (const std::string& name : names) {
          const Regex regex(pattern);
          RegexSearch search(regex);
          const std::string valid = utf8::valid(name);
          search.start(valid);
          if (search.next())
            unsupported(where,
                        fmt::format("the property '{}' that matches 'patternProperties' is", one_line(name)));
        }
        if (value == false) return "";
        const std::string key = strings_matching(pattern, {}, basic("char"), place(where));
        return pair(rule(fmt::format("\"\\\"\" {} \"\\\"\"", key)), value, where + "/patternProperties");
      }
    }
    if (!open && !asked_for) return "";
    const std::string key = names.empty() ? basic("string") : rule("\"\\\"\" " + other_name(names));
    return pair(key, other, where + "/additionalProperties");
  }

  /// The rest of a string, with its closing quote, that is none of the names. Spelt without escapes, so that
  /// a name cannot come in disguise.
  std::string other_name(const std::vector<std::string>& names, size_t depth = 0) {
    std::map<char32_t, std::vector<std::string>> by_first;
    bool is_name = false;
    for (const std::string& name : names) {
      size_t pos = 0;
      const std::string valid = utf8::valid(name);
      if (valid.empty()) {
        is_name = true;
        continue;
      }
      const char32_t first = utf8::next(valid, pos);
      by_first[first].push_back(valid.substr(pos));
    }
    if (depth > kMaxDepth) return "[]";  // no other name is as long
    CodeSet others = ~(CodeSet::range(0, 0x1F) | CodeSet::range('"', '"') | CodeSet::range('\\', '\\') |
                       CodeSet::range(0x7F, 0x7F));
    const std::string plain = rule(json_characters(others));
    std::string result = is_name ? "" : "\"\\\"\"";
    for (const auto& [first, rests] : by_first) {
      if (!others.contains(first)) continue;
      const CodeSet letter = CodeSet::range(first, first);
      others = others & ~letter;
      result += fmt::format("{}{} {}", result.empty() ? "" : " | ", json_characters(letter),
                            rule(other_name(rests, depth + 1)));
    }
    result += fmt::format("{}{} {}* \"\\\"\"", result.empty() ? "" : " | ", json_characters(others), plain);
    return "(" + result + ")";
  }

  const Schema& schema_;
  std::map<std::string, std::string> rules_;       // name to body
  std::map<std::string, std::string> names_;       // body to name
  std::map<std::string, std::string> references_;  // $ref to name
  std::vector<std::string> open_;  // references that are being followed, since the last bracket
  size_t size_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string json_schema_to_gbnf(std::string_view schema) {
  Schema parsed;
  try {
    parsed = Schema::parse(schema, [](int depth, Schema::parse_event_t, const Schema&) {
      if (depth > kMaxDepth)
        fail(ErrorKind::unsupported, "[json schema] nested deeper than {} levels", kMaxDepth);
      return true;
    });
  } catch (const Schema::exception&) {
    fail(ErrorKind::invalid, "[json schema] not valid JSON");
  }
  return Converter(parsed).convert();
}

std::string json_object_gbnf() {
  return json_schema_to_gbnf(R"({"type": "object"})");
}

}  // namespace weft
