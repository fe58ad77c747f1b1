#include "llm/grammar/grammar.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "llm/grammar/gbnf.h"
#include "llm/toy_vocabulary.h"
#include "support/gpus.h"
#include "text/utf8.h"
#include "weft/error.h"

using namespace weft;
using test::error_of;

namespace {

const std::shared_ptr<const TokenTrie>& toy() {
  static const auto tokens = std::make_shared<const TokenTrie>(test::toy_tokenizer(
      {"ab", "abc", "ab", "\":", "\xC3\xA9", "\xA9x", "true", "[]", "aé", "\xE2\x82", "12", "\n\n"}));
  return tokens;
}

TokenId end_token() {
  return toy()->ends().front();
}

enum class Fate { refused, goes_on, complete, finished };

/// Byte by byte.
Fate fate(const Grammar& grammar, std::string_view text) {
  GrammarState state(grammar, toy());
  for (char byte : text) {
    const TokenId id = static_cast<unsigned char>(byte);
    if (!state.allows(id)) return Fate::refused;
    state.accept(id);
  }
  return state.finished() ? Fate::finished : state.may_end() ? Fate::complete : Fate::goes_on;
}

bool accepts(const std::string& grammar, std::string_view text) {
  return fate(Grammar(grammar), text) >= Fate::complete;
}

std::string error(const std::string& grammar) {
  return error_of([&] { Grammar{grammar}; }).message;
}

/// Where parts of a grammar can end in a text: slow and obvious.
class Reference {
 public:
  using Ends = std::set<size_t>;
  Reference(const std::vector<gbnf::Rule>& rules, std::string_view text) : rules_(rules), text_(text) {}

  bool matches() { return rule("root", 0).contains(text_.size()); }

 private:
  const Ends& rule(const std::string& name, size_t pos) {
    const auto [at, added] = known_.try_emplace({name, pos});
    if (added) at->second = ends(std::ranges::find(rules_, name, &gbnf::Rule::name)->body, pos);
    return at->second;
  }

  Ends ends_from(const gbnf::Node& node, const Ends& begins) {
    Ends result;
    for (size_t begin : begins) result.merge(ends(node, begin));
    return result;
  }

  Ends ends(const gbnf::Node& node, size_t pos) {
    Ends result = {pos};
    switch (node.kind) {
      case gbnf::Node::Kind::text:
        return text_.substr(pos).starts_with(node.text) ? Ends{pos + node.text.size()} : Ends{};
      case gbnf::Node::Kind::set: {
        if (pos == text_.size()) return {};
        const char32_t code = utf8::next(text_, pos);
        return node.set.contains(code) ? Ends{pos} : Ends{};
      }
      case gbnf::Node::Kind::rule:
        return rule(node.text, pos);
      case gbnf::Node::Kind::sequence:
        for (const gbnf::Node& part : node.parts) result = ends_from(part, result);
        return result;
      case gbnf::Node::Kind::choice:
        result.clear();
        for (const gbnf::Node& part : node.parts) result.merge(ends(part, pos));
        return result;
      case gbnf::Node::Kind::repeat: {
        for (uint32_t i = 0; i < node.min; ++i) result = ends_from(node.parts[0], result);
        Ends all = result;
        for (uint32_t i = node.min; i < node.max && !result.empty(); ++i) {
          result = ends_from(node.parts[0], result);
          std::erase_if(result, [&](size_t end) { return all.contains(end); });
          all.insert(result.begin(), result.end());
        }
        return all;
      }
    }
    return result;
  }

  const std::vector<gbnf::Rule>& rules_;
  std::string_view text_;
  std::map<std::pair<std::string, size_t>, Ends> known_;
};

/// An expression of "a", "b", é, classes, the names, groups and repetitions.
std::string random_expression(std::mt19937& random, const std::vector<std::string>& names, int depth) {
  const auto one_of = [&](std::initializer_list<const char*> all) {
    return std::string(*(all.begin() + random() % all.size()));
  };
  std::string result;
  for (unsigned i = random() % 3 + (depth > 0); i > 0; --i) {
    switch (random() % (depth > 2 ? 4 : 6)) {
      case 0:
        result += one_of({"\"a\"", "\"b\"", "\"ab\"", "\"é\""});
        break;
      case 1:
        result += one_of({"[ab]", "[^a]", "[a-b]", ".", "[^b]", "[aé]"});
        break;
      case 2:
      case 3:
        result += names[random() % names.size()];
        break;
      default:
        result += "(" + random_expression(random, names, depth + 1) + " | " +
                  random_expression(random, names, depth + 1) + ")";
    }
    result += one_of({"", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}"}) + " ";
  }
  return result;
}

}  // namespace

TEST_SUITE_BEGIN("base: grammar");

TEST_CASE("the notation") {
  CHECK(accepts(R"(root ::= "abc")", "abc"));
  CHECK(fate(Grammar(R"(root ::= "abc")"), "ab") == Fate::goes_on);
  CHECK(fate(Grammar(R"(root ::= "abc")"), "abc") == Fate::finished);
  CHECK(fate(Grammar(R"(root ::= "abc"*)"), "abc") == Fate::complete);
  CHECK(fate(Grammar(R"(root ::= "abc")"), "abd") == Fate::refused);
  CHECK(accepts("root ::= \"a\" | \"b\" # a comment\n", "b"));
  CHECK(accepts("# one\nroot ::= x   y # two | three\n\n  # four\nx ::= \"1\"\r\ny ::= \"2\"", "12"));
  CHECK(accepts("root ::=\n  \"a\" |\n  \"b\"\n  | \"c\"\nother-rule_1 ::= [x]", "c"));
  CHECK(accepts("root ::= (\"a\"\n  # inside\n  \"b\" )\n", "ab"));
  CHECK(accepts("root ::= x | \nx ::= \"a\"", ""));
  CHECK(accepts("root ::=\nx ::= \"a\"", ""));
  CHECK(accepts("root ::= ()", ""));
  CHECK(accepts(R"(root ::= "\x41\u0042\U00000043\t\r\n\\\"\[\]")", "ABC\t\r\n\\\"[]"));
  CHECK(accepts(R"(root ::= "\u00e9\u20ac\U0001F600é")", "é€😀é"));

  const Grammar hex(R"(root ::= [0-9a-fA-F\-\]\^_-]+)");
  for (const char* text : {"0", "9", "af", "-", "]", "^", "_"}) CHECK(fate(hex, text) == Fate::complete);
  for (const char* text : {"g", "[", "/", "`", "é"}) CHECK(fate(hex, text) == Fate::refused);
  const Grammar other("root ::= [^a-y\\n]");
  for (const char* text : {"z", "é", "€", "😀", "A", "\t"}) CHECK(fate(other, text) == Fate::finished);
  for (const char* text : {"a", "y", "\n", "\xC0", "\xED\xA0", "\xF5", "\x80"})
    CHECK(fate(other, text) == Fate::refused);
  CHECK(fate(other, "\xE2\x82") == Fate::goes_on);
  CHECK(accepts("root ::= ..", "\n€"));
  CHECK(fate(Grammar("root ::= []"), "a") == Fate::refused);

  const auto counts = [](const std::string& repeat) {
    std::string result;
    for (size_t i = 0; i < 8; ++i)
      if (accepts("root ::= \"ab\"" + repeat, std::string("abababababababab").substr(0, 2 * i)))
        result += fmt::format("{} ", i);
    return result;
  };
  CHECK(counts("*") == "0 1 2 3 4 5 6 7 ");
  CHECK(counts("+") == "1 2 3 4 5 6 7 ");
  CHECK(counts("?") == "0 1 ");
  CHECK(counts("{3}") == "3 ");
  CHECK(counts("{0}") == "0 ");
  CHECK(counts("{ 3 , }") == "3 4 5 6 7 ");
  CHECK(counts("{2,4}") == "2 3 4 ");
  CHECK(counts("{0,2}") == "0 1 2 ");
  CHECK(counts("{2}{2}") == "4 ");
  CHECK(counts("?{3}") == "0 1 2 3 ");
}

TEST_CASE("mistakes have a line") {
  CHECK(error("root ::= x") == "[grammar] line 1: there is no rule 'x'");
  CHECK(error("\n\nroot ::= (\"a\" |\n y)") == "[grammar] line 4: there is no rule 'y'");
  CHECK(error("x ::= \"a\"") == "[grammar] there is no rule 'root'");
  CHECK(error("") == "[grammar] there is no rule 'root'");
  CHECK(error("root ::= \"a\"\nroot ::= \"b\"") == "[grammar] line 2: 'root' is already defined in line 1");
  CHECK(error("root ::= root \"a\"") == "[grammar] line 1: left recursion: 'root' may begin with itself");
  CHECK(error("root ::= \"a\" x\nx ::= y* z\ny ::= \"b\"\nz ::= () x") ==
        "[grammar] line 2: left recursion: 'x' may begin with itself");
  CHECK(error("root ::= \"a") == "[grammar] line 1: a \" is missing");
  CHECK(error("root ::= \"a\n\"") == "[grammar] line 1: a \" is missing");
  CHECK(error("root ::= [a") == "[grammar] line 1: a ] is missing");
  CHECK(error("root ::= (\"a\"\n\n") == "[grammar] line 3: a ) is missing");
  CHECK(error("root ::= \"a\")") == "[grammar] line 1: unmatched )");
  CHECK(error("root ::= *") == "[grammar] line 1: nothing to repeat");
  CHECK(error("root ::= \"a\"{2") == "[grammar] line 1: a } is missing");
  CHECK(error("root ::= \"a\"{,2}") == "[grammar] line 1: a number is missing in { }");
  CHECK(error("root ::= \"a\"{3,2}") == "[grammar] line 1: a repetition ends before it begins");
  CHECK(error("root ::= [b-a]") == "[grammar] line 1: a range ends before it begins");
  CHECK(error("root ::= \"\\q\"") == "[grammar] line 1: unknown escape");
  CHECK(error("root ::= \"\\u12\"") == "[grammar] line 1: an escape needs 4 hexadecimal digits");
  CHECK(error("root ::= \"\\U00110000\"") == "[grammar] line 1: an escape is no character");
  CHECK(error("root = \"a\"") == "[grammar] line 1: ::= is missing behind 'root'");
  CHECK(error("root ::= \"a\" @") == "[grammar] line 1: this cannot be read");
  CHECK(error("::= \"a\"") == "[grammar] line 1: a rule begins with its name");
  CHECK(error("root ::= \"\xFF\"") == "[grammar] byte 10 is not UTF-8");
}

TEST_CASE("random grammars match what their definition matches") {
  std::mt19937 random(1);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 5; ++i)
    for (const char* letter : {"a", "b", "é"}) texts.push_back(texts[i] + letter);
  texts.resize(150);
  int compared = 0, complete = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::vector<std::string> names = {"root", "x", "y"};
    std::string text;
    for (const std::string& name : names)
      text += name + " ::= " + random_expression(random, names, 0) + " | " +
              random_expression(random, names, 0) + "\n";
    CAPTURE(text);
    const std::vector<gbnf::Rule> rules = gbnf::parse(text);
    std::optional<Grammar> grammar;
    try {
      grammar.emplace(text);
    } catch (const Error& e) {
      CHECK(std::string_view(e.what()).find("left recursion") != std::string_view::npos);
      continue;
    }
    for (const std::string& candidate : texts) {
      CAPTURE(candidate);
      const bool expected = Reference(rules, candidate).matches();
      CHECK((fate(*grammar, candidate) >= Fate::complete) == expected);
      ++compared;
      complete += expected;
    }
  }
  CHECK(compared > 10000);
  CHECK(complete > 1000);
}

TEST_CASE("tokens of several bytes, and parts of characters") {
  const Grammar grammar(R"(root ::= "a" ("b" | "é" | [€x]) "c"?)");
  GrammarState state(grammar, toy());
  const auto texts = [&] {
    std::set<std::string> result;
    const auto mask = state.allowed();
    for (TokenId id = 0; static_cast<size_t>(id) < toy()->size(); ++id) {
      CHECK((*mask)[id] == state.allows(id));
      if ((*mask)[id]) result.insert(toy()->is_end(id) ? "END" : toy()->bytes(id));
    }
    return result;
  };
  CHECK(texts() == std::set<std::string>{"a", "ab", "abc", "aé"});
  CHECK((*state.allowed())[256]);  // "ab" twice in the vocabulary
  CHECK((*state.allowed())[258]);
  state.accept('a');
  CHECK(texts() == std::set<std::string>{"b", "\xC3", "é", "\xE2", "\xE2\x82", "x"});
  CHECK_FALSE(state.may_end());
  GrammarState copy = state;
  copy.accept(265);  // E2 82
  state.accept('b');
  CHECK(texts() == std::set<std::string>{"c", "END"});
  state.accept('c');
  CHECK(state.finished());
  CHECK(texts() == std::set<std::string>{"END"});
  state.accept(end_token());
  CHECK(texts().empty());
  CHECK(state.finished());
  state = copy;
  CHECK(texts() == std::set<std::string>{"\xAC"});
  CHECK(error_of([&] { state.accept('a'); }).message == "[grammar] token 97 is not allowed here");
  CHECK(error_of([&] { state.accept(end_token()); }).message.find("not allowed") != std::string::npos);
  CHECK_FALSE(state.allows(-1));
  CHECK_FALSE(state.allows(1 << 20));
  CHECK_FALSE(state.allows(end_token() - 1));  // a control token
}

TEST_CASE("deep recursion") {
  const Grammar lists(R"(root ::= "[" (root ("," root)*)? "]")");
  constexpr int kDepth = 20000;
  GrammarState state(lists, toy());
  for (int i = 0; i < kDepth; ++i) state.accept('[');
  for (int i = 0; i < kDepth; ++i) {
    CHECK_FALSE(state.may_end());
    state.accept(']');
  }
  CHECK(state.finished());
  CHECK(state.allowed()->bits().size() > 0);
  // Right recursion needs no stack: the state is the same again, and so is the set.
  GrammarState list(Grammar(R"(root ::= "a" root | "b")"), toy());
  list.accept('a');
  const auto mask = list.allowed();
  for (int i = 0; i < 1000; ++i) list.accept('a');
  CHECK(list.allowed() == mask);
}

TEST_CASE("hostile grammars end in a result or an error") {
  CHECK(error("root ::= \"a\"{0,999999999}").find("too large") != std::string::npos);
  CHECK(error("root ::= \"a\"{999999999999999999999}").find("too large") != std::string::npos);
  CHECK(error("root ::= ((([a-z]{1000}){1000}){1000}){1000}").find("too large") != std::string::npos);
  CHECK(accepts("root ::= (((){1000000000}){1000000000}){1000000000}", ""));
  CHECK(error("root ::= " + std::string(100000, '(')).find("nested too deeply") != std::string::npos);
  CHECK(error("root ::= \"a\"" + std::string(100000, '*')).find("too many repetitions") != std::string::npos);

  // 2^n stacks, were they copied.
  const Grammar ambiguous(
      "root ::= x\nx ::= \"a\" x \"b\" | \"a\" x \"c\" | \"a\" y \"b\" | \"a\"\ny ::= x | \"a\" x");
  GrammarState state(ambiguous, toy());
  for (int i = 0; i < 300; ++i) state.accept('a');
  for (int i = 0; i < 200; ++i) state.accept(i % 3 ? 'b' : 'c');
  CHECK(state.may_end());

  // Every subset of optional parts is a way to read it.
  std::string optional = "root ::= (";
  for (int i = 0; i < 2000; ++i) optional += "\"a\"? [ab]* ";
  GrammarState many(Grammar(optional + ")*"), toy());
  try {
    for (int i = 0; i < 3; ++i) many.accept('a');
    many.allowed();
  } catch (const Error& e) {
    CHECK(std::string_view(e.what()).find("too ambiguous") != std::string_view::npos);
  }

  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 20000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  CHECK(accepts(chain + "r20000 ::= \"a\"?", "a"));
  CHECK(error(chain + "r20000 ::= r3").find("left recursion") != std::string::npos);
}

TEST_CASE("copies in several threads") {
  const GrammarState start(Grammar(R"(root ::= "[" (root ("," root)*)? "]")"), toy());
  std::vector<std::thread> threads;
  std::atomic<int> finished = 0;
  for (int depth = 50; depth < 54; ++depth)
    threads.emplace_back([&start, &finished, depth] {
      GrammarState state = start;
      for (int i = 0; i < 2 * depth; ++i) {
        if (!(*state.allowed())[i < depth ? '[' : ']']) return;
        state.accept(i < depth ? '[' : ']');
      }
      finished += state.finished();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(finished == 4);
}

TEST_CASE("what is remembered is bounded") {
  // Every number of a's is another state.
  const Grammar grammar("root ::= x{100000}\nx ::= [a-z]");
  GrammarState state(grammar, toy());
  GrammarState copy = state;
  for (int i = 0; i < 99999; ++i) {
    state.accept(i % 2 ? 'a' : 'b');
    if (i % 10 == 0) CHECK((*state.allowed())['q']);
  }
  CHECK_FALSE(state.may_end());
  state.accept('z');
  CHECK(state.finished());
  CHECK(copy.allows('a'));
}

TEST_SUITE_END();
