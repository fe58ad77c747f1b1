#include "llm/grammar/json_schema.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "llm/grammar/grammar.h"
#include "llm/grammar/number_grammar.h"
#include "llm/schema_validator.h"
#include "llm/toy_vocabulary.h"
#include "support/gpus.h"
#include "weft/error.h"

using namespace weft;
using nlohmann::json;
using nlohmann::ordered_json;
using test::error_of;

namespace {

const std::shared_ptr<const TokenTrie>& toy() {
  static const auto tokens = std::make_shared<const TokenTrie>(test::toy_tokenizer(
      {"{\"", "\":", "\",\"", "true",     "false", "null", ", ",    "[]", "{}", "\"a\"", "0.",
       "12",  "é",   "\\u",   "\xF0\x9F", "ab",    "name", "\":\"", "]}", "}}", "-1",    "\\\""}));
  return tokens;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  GrammarState state(grammar, toy());
  for (char byte : text) {
    const TokenId id = static_cast<unsigned char>(byte);
    if (!state.allows(id)) return false;
    state.accept(id);
  }
  return state.may_end();
}

bool allows(const std::string& schema, std::string_view text) {
  return accepts(Grammar(json_schema_to_gbnf(schema)), text);
}

std::string error(const std::string& schema) {
  return error_of([&] { json_schema_to_gbnf(schema); }).message;
}

/// A text of random tokens that the grammar allows. The longer it gets, the more it wants to end.
std::string random_text(GrammarState state, std::mt19937& random) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    const auto mask = state.allowed();
    TokenId best = kNoToken;
    double best_weight = -1;
    for (TokenId id = 0; static_cast<size_t>(id) < toy()->size(); ++id) {
      if (!(*mask)[id]) continue;
      double weight = std::uniform_real_distribution<double>()(random);
      const std::string& bytes = toy()->bytes(id);
      if (toy()->is_end(id)) weight += i > 20 ? 5 : 0.3;
      if (i > 60 && (bytes == "}" || bytes == "]")) weight += 4;
      if (i > 60 && bytes == "\"") weight += 6;
      const bool letter = bytes == " " || (bytes >= "a" && bytes <= "z" && bytes.size() == 1);
      if (i > 60 && letter) weight += 4.5;
      if (i > 60 && (bytes == "," || bytes == ":")) weight += 3;
      if (i > 60 && bytes >= "0" && bytes <= "9" && bytes.size() == 1) weight += 1;
      if (weight > best_weight) best = id, best_weight = weight;
    }
    REQUIRE(best != kNoToken);
    if (toy()->is_end(best)) return text;
    text += toy()->bytes(best);
    state.accept(best);
  }
  FAIL("no end: ", text);
  return text;
}

/// A random schema of all that is supported.
class SchemaMaker {
 public:
  explicit SchemaMaker(unsigned seed) : random_(seed) {}

  ordered_json document() {
    ordered_json result = schema(0);
    if (!result.is_object()) return result;
    result["$defs"] = {{"tree",
                        {{"type", "object"},
                         {"properties", {{"v", {{"type", "integer"}}}, {"next", {{"$ref", "#/$defs/tree"}}}}},
                         {"required", {"v"}}}},
                       {"list", {{"type", "array"}, {"items", {{"$ref", "#/$defs/list"}}}, {"maxItems", 2}}}};
    return result;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return *(all.begin() + below(static_cast<int>(all.size())));
  }

  ordered_json schema(int depth) {
    switch (below(depth > 2 ? 8 : 16)) {
      case 0:
        return one_of<ordered_json>({{{"type", "boolean"}},
                                     {{"type", "null"}},
                                     {{"type", "string"}},
                                     {{"type", "integer"}},
                                     {{"type", "number"}},
                                     {{"description", "any"}}});
      case 1:
      case 2:
        return number();
      case 3:
      case 4:
        return string();
      case 5:
        return {{"enum", {"a", 1, "quote\"\\\n", nullptr, 2.5, {{"k", {1, 2}}}, "é"}}};
      case 6:
        return {{"const", one_of<ordered_json>({"x", 5, -0.25, true, {1, "two"}})}};
      case 7:
        return {{"$ref", one_of<const char*>({"#/$defs/tree", "#/$defs/list"})}};
      case 8:
        return {{"type", {"string", "null", "integer"}}, {"maxLength", 3}, {"minimum", -3}};
      case 9:
      case 10:
        return array(depth);
      case 11:
        return {{"anyOf", {schema(depth + 1), schema(depth + 1)}}};
      case 12:
        return {{"oneOf",
                 {{{"type", "object"},
                   {"properties", {{"kind", {{"const", "a"}}}, {"x", schema(depth + 1)}}},
                   {"required", {"kind"}}},
                  {{"type", "object"}, {"properties", {{"kind", {{"const", "b"}}}}}, {"required", {"kind"}}},
                  string(),
                  {{"type", "boolean"}}}}};
      case 13:
        return {
            {"allOf",
             {{{"$ref", "#/$defs/tree"}},
              {{"properties", {{"v", {{"maximum", 9}}}, {"w", schema(depth + 1)}}}, {"required", {"w"}}}}},
            {"title", "both"}};
      default:
        return object(depth);
    }
  }

  ordered_json number() {
    ordered_json result = {{"type", one_of<const char*>({"integer", "number"})}};
    const double low = one_of<double>({-1000, -12.5, -7, -0.3, 0, 0.05, 1, 3.25, 99, 100});
    const double high = low + one_of<double>({1, 1.5, 8, 9, 42, 1000, 123456});
    const auto bound = [&](double x) {
      return x == std::floor(x) ? ordered_json(static_cast<int>(x)) : ordered_json(x);
    };
    if (below(4)) result[one_of<const char*>({"minimum", "exclusiveMinimum"})] = bound(low);
    if (below(4))
      result[one_of<const char*>({"maximum", "exclusiveMaximum"})] = bound(high + 0.25 * below(2));
    if (result.contains("exclusiveMinimum") && result.contains("exclusiveMaximum"))
      result.erase("exclusiveMinimum");
    if (!below(5)) result["nullable"] = true;
    return result;
  }

  ordered_json string() {
    ordered_json result = {{"type", "string"}};
    switch (below(4)) {
      case 0:
        result["minLength"] = below(4);
        if (below(2)) result["maxLength"] = 3 + below(5);
        break;
      case 1:
        result["format"] =
            one_of<const char*>({"date", "time", "date-time", "uuid", "ipv4", "email", "hostname"});
        break;
      case 2:
        result["pattern"] = one_of<const char*>({"^[a-z]+$", "^(foo|bar)?[0-9]{2,4}$", "b+", "^x", "y$",
                                                 "^\\d{3}-\\w+$", "^a|b$", "^[^a-z\"]{2,5}$", "^\\S+\\s\\S$",
                                                 "^[A-F\\d.\\-\\]]*$", "^(?:ab|c[de]){1,3}f?$", "^.{3}$"});
        break;
      default:
        result["pattern"] = "^id_[a-z]*$";
        result["minLength"] = 5;
        result["maxLength"] = 8;
    }
    return result;
  }

  ordered_json array(int depth) {
    ordered_json result = {{"type", "array"}};
    if (below(2)) result["items"] = schema(depth + 1);
    if (!below(3)) result["prefixItems"] = {schema(depth + 1), schema(depth + 1)};
    const int min = below(3);
    if (below(2)) result["minItems"] = min;
    if (below(2)) result["maxItems"] = min + below(3);
    return result;
  }

  ordered_json object(int depth) {
    ordered_json result = {{"type", "object"}, {"properties", ordered_json::object()}};
    ordered_json required = ordered_json::array();
    for (const char* name : {"name", "n", "é\"", "nam", "z"}) {
      if (!below(3)) continue;
      result["properties"][name] = schema(depth + 1);
      if (below(2)) required.push_back(name);
    }
    if (!below(8)) required.push_back("more");
    if (!required.empty()) result["required"] = required;
    if (!below(4))
      result["additionalProperties"] = below(3) ? schema(depth + 1) : ordered_json(true);
    else if (below(2) && !std::count(required.begin(), required.end(), "more"))
      result["additionalProperties"] = false;
    if (!below(6) && !result.contains("additionalProperties"))
      result["patternProperties"] = {{"^x_[a-z]+$", schema(depth + 1)}};
    return result;
  }

  std::mt19937 random_;
};

}  // namespace

TEST_SUITE_BEGIN("base: json schema");

TEST_CASE("whatever follows the grammar of a random schema is valid") {
  int schemas = 0, texts = 0;
  for (unsigned seed = 0; schemas < 200; ++seed) {
    REQUIRE(seed < 1000);
    const ordered_json schema = SchemaMaker(seed).document();
    CAPTURE(schema.dump());
    std::string gbnf;
    try {
      gbnf = json_schema_to_gbnf(schema.dump());
    } catch (const Error& e) {  // additionalProperties beside allOf, a range without an integer ...
      CAPTURE(e.what());
      CHECK((e.kind() == ErrorKind::unsupported ||
             std::string_view(e.what()).find("no ") != std::string_view::npos ||
             std::string_view(e.what()).find("minItems") != std::string_view::npos));
      continue;
    }
    ++schemas;
    CAPTURE(gbnf);
    const GrammarState start(Grammar(gbnf), toy());
    std::mt19937 random(seed);
    for (int i = 0; i < 5; ++i, ++texts) {
      const std::string text = random_text(start, random);
      CAPTURE(text);
      const json value = json::parse(text, nullptr, false);
      REQUIRE_FALSE(value.is_discarded());
      CHECK(test::why_invalid(schema, value, schema) == "");
    }
  }
  CHECK(texts == 1000);
}

TEST_CASE("integers within bounds, each one") {
  const int edges[] = {-1001, -1000, -999, -110, -100, -99, -11, -10, -9,  -1,  0,    1,
                       5,     9,     10,   11,   19,   99,  100, 101, 550, 999, 1000, 1001};
  for (int low : edges)
    for (int high : edges) {
      if (high < low) continue;
      CAPTURE(low);
      CAPTURE(high);
      const Grammar both(
          json_schema_to_gbnf(fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", low, high)));
      for (int x : edges) CHECK(accepts(both, fmt::format("{}", x)) == (x >= low && x <= high));
      for (int x : {low - 1, low, low + 1, high - 1, high, high + 1, (low + high) / 2})
        CHECK(accepts(both, fmt::format("{}", x)) == (x >= low && x <= high));
      CHECK_FALSE(accepts(both, "-0"));
      CHECK_FALSE(accepts(both, "01"));
    }
  for (int low : edges) {
    const Grammar up(json_schema_to_gbnf(fmt::format(R"({{"type":"integer","exclusiveMinimum":{}}})", low)));
    const Grammar down(
        json_schema_to_gbnf(fmt::format(R"({{"type":"integer","exclusiveMaximum":{}}})", low)));
    for (int x = -1200; x < 1200; ++x) {
      CHECK(accepts(up, fmt::format("{}", x)) == (x > low));
      CHECK(accepts(down, fmt::format("{}", x)) == (x < low));
    }
  }
  CHECK(allows(R"({"type":"integer","minimum":9007199254740993})", "9007199254740993"));
  CHECK_FALSE(allows(R"({"type":"integer","minimum":9007199254740993})", "9007199254740992"));
  CHECK(allows(R"({"type":"integer","format":"int32"})", "-2147483648"));
  CHECK_FALSE(allows(R"({"type":"integer","format":"int32"})", "2147483648"));
}

TEST_CASE("numbers within bounds") {
  const char* edges[] = {"-100", "-10.25", "-1",   "-0.5", "-0.05", "0",    "0.05", "0.1",
                         "0.2",  "0.25",   "0.75", "1",    "1.5",   "9.99", "10",   "100.125"};
  for (const char* low : edges)
    for (const char* high : edges)
      for (bool exclusive : {false, true}) {
        const double a = std::stod(low), b = std::stod(high);
        if (a > b || (exclusive && a == b)) continue;
        CAPTURE(low);
        CAPTURE(high);
        CAPTURE(exclusive);
        const std::string schema =
            fmt::format(R"({{"type":"number","{0}inimum":{2},"{1}aximum":{3}}})",
                        exclusive ? "exclusiveM" : "m", exclusive ? "exclusiveM" : "m", low, high);
        const Grammar grammar(json_schema_to_gbnf(schema));
        for (const char* text : edges)
          for (const char* more : {"", "0", "01", "9"}) {
            const std::string number =
                std::string(text) +
                (*more && std::string_view(text).find('.') == std::string::npos ? "." : "") + more;
            const double x = std::stod(number);
            CAPTURE(number);
            const bool zero = x == 0 && number[0] == '-';
            CHECK(accepts(grammar, number) == (!zero && (exclusive ? x > a && x < b : x >= a && x <= b)));
          }
      }
}

TEST_CASE("what a schema allows") {
  const std::string person =
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age"]})";
  CHECK(allows(person, R"({"name":"x","age":3})"));
  CHECK(allows(person, R"({"name": "x", "age": 3, "tags": []})"));
  CHECK(allows(person, "{\n  \"name\": \"x\",\n  \"age\": 3,\n  \"tags\": [\"a\", \"b\"]\n}"));
  CHECK_FALSE(allows(person, R"({"age":3,"name":"x"})"));  // not in this order
  CHECK_FALSE(allows(person, R"({"name":"x"})"));
  CHECK_FALSE(allows(person, R"({"name":"x","age":3,"other":1})"));
  CHECK_FALSE(allows(person, R"({"name":"x","age":3.5})"));
  CHECK_FALSE(allows(person, R"({"name":"x","age":3} )"));

  const std::string optional =
      R"({"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["b"],"additionalProperties":{"type":"integer"}})";
  for (const char* text : {R"({"b":null})", R"({"a":null,"b":null})", R"({"b":null,"c":null})",
                           R"({"b":null,"x":1,"y":2})", R"({"b":null,"ab":1,"":2})"})
    CHECK(allows(optional, text));
  for (const char* text : {"{}", R"({"a":null})", R"({"b":null,"c":1})", R"({"b":null,"a":1})",
                           R"({"b":null,"\u0061":1})", R"({"x":1,"b":null})", R"({"b":null,})"})
    CHECK_FALSE(allows(optional, text));

  CHECK(allows("true", R"({"a":[1,2.5e3,"x\n\u00e9\ud83d\ude00",true,null,{}]})"));
  CHECK(allows("{}", "null"));
  CHECK_FALSE(allows("{}", R"("\ud83d")"));
  CHECK_FALSE(allows("{}", "\"\n\""));
  CHECK_FALSE(allows("{}", "[1,]"));
  const Grammar object(json_object_gbnf());
  CHECK(accepts(object, R"({"a": {"b": [1, 2]}})"));
  CHECK_FALSE(accepts(object, "[]"));

  CHECK(allows(R"({"enum":["a","b\"",3]})", R"("b\"")"));
  CHECK_FALSE(allows(R"({"enum":["a","b",3],"type":"string"})", "3"));
  CHECK(allows(R"({"type":["string","null"]})", "null"));
  CHECK(allows(R"({"type":"string","nullable":true})", "null"));
  CHECK(allows(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})", R"([1, "a"])"));
  CHECK_FALSE(allows(R"({"type":"array","prefixItems":[{"type":"integer"}],"items":false})", R"([1, 2])"));
  CHECK(allows(R"({"items":[{"const":1}],"additionalItems":{"const":2}})", "[1,2,2]"));
  CHECK_FALSE(allows(R"({"type":"array","minItems":2,"maxItems":3})", "[1]"));
  CHECK(allows(R"({"type":"array","minItems":2,"maxItems":3})", "[1,2,3]"));
  CHECK_FALSE(allows(R"({"type":"array","maxItems":0})", "[1]"));
  CHECK(allows(R"({"type":"array","maxItems":0})", "[]"));
  CHECK(allows(R"({"minLength":2,"maxLength":3})", R"("é\n😀")"));
  CHECK_FALSE(allows(R"({"minLength":2,"maxLength":3})", R"("é")"));

  const std::string tree =
      R"({"$defs":{"a/b":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/a~1b"}}}}},"$ref":"#/$defs/a~1b"})";
  CHECK(allows(tree, R"({"kids":[{"kids":[]},{}]})"));
  CHECK_FALSE(allows(tree, R"({"kids":[1]})"));
  CHECK(allows(R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]})", "[null,[[]]]"));
  // A part that repeats itself inside allOf is one rule, not an endless tree.
  CHECK(allows(
      R"({"allOf":[{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"object","properties":{"l":{"allOf":[{"$ref":"#/$defs/n"}],"default":1},"r":{"allOf":[{"$ref":"#/$defs/n"}]}}}}})",
      R"({"l":{"r":{"l":{}}}})"));
  CHECK(allows(
      R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})",
      R"({"a":1,"b":2})"));
  CHECK_FALSE(
      allows(R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1})", "{}"));
}

TEST_CASE("patterns") {
  struct Row {
    const char *pattern, *yes, *no;
  };
  for (const Row& row : {Row{"^[a-c]{2}$", "ab", "abc"},
                         Row{"^a", "abc", "ba"},
                         Row{"c$", "abc", "cd"},
                         Row{"b", "abc", "ac"},
                         Row{"^a|b$", "ac", "bc"},
                         Row{"^(a|bc)*$", "abca", "abb"},
                         Row{"^\\d+\\.\\d$", "12.5", "12,5"},
                         Row{"^[\\w-]+$", "a_-9", "é"},
                         Row{"^[^\\d]$", "x", "7"},
                         Row{"^\\S$", "x", " "},
                         Row{"^[[]$", "[", "]"},
                         Row{"^a\\/b$", "a/b", "a\\\\b"},
                         Row{"^\\\\$", "\\\\", "/"},
                         Row{"^\"$", "\\\"", "x"},
                         Row{"^\\n$", "\\n", "n"},
                         Row{"^\\u00e9+?$", "éé", "e"},
                         Row{"^.$", "é", "éé"},
                         Row{"^\\x01$", "\\u0001", "1"},
                         Row{"^(?<year>\\d{4})$", "1999", "199"},
                         Row{"", "anything", "\n"}}) {
    CAPTURE(row.pattern);
    const ordered_json schema = {{"type", "string"}, {"pattern", row.pattern}};
    const Grammar grammar(json_schema_to_gbnf(schema.dump()));
    CHECK(accepts(grammar, fmt::format("\"{}\"", row.yes)));
    CHECK_FALSE(accepts(grammar, fmt::format("\"{}\"", row.no)));
  }
}

TEST_CASE("what is not supported is named") {
  struct Row {
    const char *schema, *message;
  };
  for (const Row& row :
       {Row{R"({"not":{}})", "at the top: 'not' is not supported"},
        Row{R"({"properties":{"a":{"multipleOf":3}}})", "/properties/a: 'multipleOf' is not supported"},
        Row{R"({"type":"array","uniqueItems":true})", "at the top: 'uniqueItems' is not supported"},
        Row{R"({"if":{}})", "at the top: 'if' is not supported"},
        Row{R"({"type":"string","format":"iri"})", "at the top: the format 'iri' is not supported"},
        Row{R"({"$ref":"http://x/y"})",
            "at the top: '$ref' to 'http://x/y', another document, is not supported"},
        Row{R"({"$ref":"#/$defs/x"})", "at the top: '$ref': there is no '#/$defs/x'"},
        Row{R"({"$ref":"#"})", "#: # is nothing but itself"},
        Row{R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}},"$ref":"#/$defs/a"})",
            "#/$defs/a/anyOf/0: #/$defs/a is nothing but itself"},
        Row{R"({"type":"text"})", "at the top: there is no type 'text'"},
        Row{R"({"type":"string","pattern":"^(?=a)b$"})",
            "at the top: pattern '^(?=a)b$': looking ahead or behind is not supported"},
        Row{R"({"type":"string","pattern":"a\\bb"})",
            "at the top: pattern 'a\\bb': an anchor inside it is not supported"},
        Row{R"({"type":"string","pattern":"^(ab)*$","minLength":3})",
            "at the top: pattern '^(ab)*$': minLength or maxLength beside it is not supported"},
        Row{R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
            "at the top: 'oneOf' whose alternatives 0 and 1 may both be valid is not supported"},
        Row{R"({"type":"integer","minimum":3,"maximum":2})", "at the top: no number is within the bounds"},
        Row{R"({"type":"integer","minimum":"3"})", "at the top: 'minimum' is not a number that can be used"},
        Row{R"({"type":"string","minLength":-1})", "at the top: 'minLength' is not a count"},
        Row{R"({"enum":["a"],"minLength":1})",
            "at the top: 'minLength' beside 'enum' or 'const' is not supported"},
        Row{R"({"enum":[1],"type":"string"})", "at the top: no value is valid"},
        Row{R"({"properties":{"a":false},"required":["a"]})", "/properties/a: no value is valid"},
        Row{R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
            "at the top: 'b' is a property of one part, and another part has additionalProperties: false"},
        Row{R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})",
            "at the top: 'pattern' in several parts of it is not supported"},
        Row{R"({"type":"object","properties":{"a":{}},"minProperties":1})",
            "at the top: 'minProperties' above the number of required properties is not supported"},
        Row{R"({"properties":{"x":{}},"patternProperties":{"x":{}}})",
            "at the top: the property 'x' that matches 'patternProperties' is not supported"},
        Row{"3", "at the top: a schema is an object, true or false"},
        Row{"{", "not valid JSON"}}) {
    CAPTURE(row.schema);
    const std::string message = error(row.schema);
    CHECK(message == std::string("[json schema] ") + row.message);
  }
  std::string deep = "true";
  for (int i = 0; i < 300; ++i) deep = R"({"items":)" + deep + "}";
  CHECK(error(deep).find("nested deeper") != std::string::npos);
  CHECK(error(std::string(100000, '[')).find("[json schema]") == 0);
  CHECK(error(R"({"type":"object","properties":{"a":{"enum":[)" + std::string(3, ' ') + "]}}}")
            .find("no value") != std::string::npos);
}

TEST_SUITE_END();
