#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/expression_parser.h"

namespace weft::jinja {
namespace {

constexpr int kMaxNesting = 100;  // of blocks in blocks

class StatementParser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body parse() {
    Body body = parse_body({});
    return body;
  }

 private:
  /// Up to a block whose name is one of `ends`, which is the current token then; without names up to the end.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    if (++nesting_ > kMaxNesting) fail("blocks are nested too deeply");
    Body body;
    while (current().type != Token::Type::end) {
      if (current().type == Token::Type::data) {
        auto data = make<Data>();
        data->text = next().text;
        body.push_back(std::move(data));
      } else if (current().type == Token::Type::variable_begin) {
        next();
        auto output = make<Output>();
        output->value = parse_tuple();
        body.push_back(std::move(output));
        expect(Token::Type::variable_end, "}}");
      } else {
        expect(Token::Type::block_begin, "{%");
        if (current().type == Token::Type::name && std::ranges::find(ends, current().text) != ends.end()) {
          --nesting_;
          return body;
        }
        if (auto statement = parse_statement()) body.push_back(std::move(statement));
        expect(Token::Type::block_end, "%}");
      }
    }
    if (ends.size() != 0) fail(fmt::format("the template ends before '{}'", *(ends.end() - 1)));
    return body;
  }

  /// A body and the name of its end, behind both.
  Body parse_block(std::string_view end) {
    expect(Token::Type::block_end, "%}");
    Body body = parse_body({end});
    next();
    return body;
  }

  std::unique_ptr<Statement> parse_statement() {
    if (current().type != Token::Type::name) fail("a block must begin with a name");
    const std::string name = next().text;
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "break" || name == "continue") return parse_loop_control(name);
    if (name == "generation") return parse_plain("endgeneration");
    if (name == "autoescape") {
      parse_expression();
      return parse_plain("endautoescape");
    }
    if (name == "block") return parse_named_block();
    fail(fmt::format("unknown block '{}'", name));
  }

  std::unique_ptr<Statement> parse_if() {
    auto node = make<If>();
    node->branches.emplace_back(parse_tuple(false), Body());
    while (true) {
      expect(Token::Type::block_end, "%}");
      node->branches.back().second = parse_body({"elif", "else", "endif"});
      const std::string end = next().text;
      if (end == "endif") return node;
      if (!node->branches.back().first) fail("a block follows 'else'");
      node->branches.emplace_back(end == "elif" ? parse_tuple(false) : nullptr, Body());
    }
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = make<For>();
    node->target = parse_target("in");
    if (!skip_name("in")) fail("'in' is missing in a for");
    node->iterable = parse_tuple(false);
    if (skip_name("if")) node->condition = parse_expression();
    node->recursive = skip_name("recursive");
    expect(Token::Type::block_end, "%}");
    ++loops_;
    node->body = parse_body({"else", "endfor"});
    --loops_;
    if (next().text == "else") node->otherwise = parse_block("endfor");
    return node;
  }

  std::unique_ptr<Statement> parse_loop_control(std::string_view name) {
    if (loops_ == 0) fail(fmt::format("'{}' outside of a loop", name));
    auto node = make<LoopControl>();
    node->flow = name == "break" ? Flow::leave_loop : Flow::next_round;
    return node;
  }

  std::unique_ptr<Statement> parse_set() {
    Target target = parse_target("=", true);
    if (skip_symbol("=")) {
      auto node = make<Set>();
      node->target = std::move(target);
      node->value = parse_tuple();
      return node;
    }
    auto node = make<SetBlock>();
    node->target = std::move(target);
    while (skip_symbol("|")) node->filters.push_back(parse_filter_call(nullptr));
    node->body = parse_outside_loops("endset");
    return node;
  }

  std::unique_ptr<Statement> parse_filter_block() {
    auto node = make<FilterBlock>();
    do node->filters.push_back(parse_filter_call(nullptr));
    while (skip_symbol("|"));
    node->body = parse_outside_loops("endfilter");
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = make<Block>();
    while (current().type != Token::Type::block_end) {
      if (!node->bindings.empty()) expect(Token::Type::symbol, ",");
      Target target = parse_target("=");
      expect(Token::Type::symbol, "=");
      node->bindings.emplace_back(std::move(target), parse_expression());
    }
    node->body = parse_block("endwith");
    return node;
  }

  std::unique_ptr<Statement> parse_plain(std::string_view end) {
    auto node = make<Block>();
    node->body = parse_block(end);
    return node;
  }

  std::unique_ptr<Statement> parse_named_block() {
    const std::string name = expect_name();
    while (skip_name("scoped") || skip_name("required")) {
    }
    auto node = parse_plain("endblock");
    skip_name(name);
    return node;
  }

  /// A body whose text goes somewhere else: break cannot leave it.
  Body parse_outside_loops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_block(end);
    loops_ = loops;
    return body;
  }

  Parameters parse_parameters() {
    Parameters parameters;
    expect(Token::Type::symbol, "(");
    while (!current().is(Token::Type::symbol, ")")) {
      if (!parameters.list.empty()) expect(Token::Type::symbol, ",");
      std::string name = expect_name();
      ExpressionPtr otherwise = skip_symbol("=") ? parse_expression() : nullptr;
      if (!otherwise && !parameters.list.empty() && parameters.list.back().second)
        fail("a parameter without default follows one with");
      parameters.list.emplace_back(std::move(name), std::move(otherwise));
    }
    next();
    return parameters;
  }

  MacroCode parse_macro_code(std::string name, std::string_view end) {
    MacroCode code{.name = std::move(name)};
    if (current().is(Token::Type::symbol, "(")) code.parameters = parse_parameters();
    return finish_macro_code(std::move(code), end);
  }

  /// Which of the special names a body uses decides what it may be called with.
  MacroCode finish_macro_code(MacroCode code, std::string_view end) {
    const size_t begin = position();
    code.body = parse_outside_loops(end);
    code.uses_varargs = mentions("varargs", begin);
    code.uses_kwargs = mentions("kwargs", begin);
    code.uses_caller = mentions("caller", begin);
    return code;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = make<MacroStatement>();
    std::string name = expect_name();
    if (!current().is(Token::Type::symbol, "(")) fail("'(' is missing behind the name of a macro");
    node->code = parse_macro_code(std::move(name), "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call_block() {
    auto node = make<CallBlock>();
    MacroCode caller{.name = "caller"};
    if (current().is(Token::Type::symbol, "(")) caller.parameters = parse_parameters();
    ExpressionPtr called = parse_expression();
    const auto* call = dynamic_cast<const Call*>(called.get());
    if (!call) fail("a call block needs a call");
    called.release();
    node->call.reset(call);
    node->caller = finish_macro_code(std::move(caller), "endcall");
    return node;
  }

  /// Names, tuples of names; `with_attributes`: also namespace.name.
  Target parse_target(std::string_view end, bool with_attributes = false) {
    std::vector<Target> items;
    bool tuple = false;
    do {
      if (current().text == end && !items.empty()) break;
      items.push_back(parse_single_target(with_attributes));
      if (!current().is(Token::Type::symbol, ",")) break;
      tuple = true;
    } while (skip_symbol(","));
    if (!tuple) return std::move(items.front());
    return {.items = std::move(items)};
  }

  Target parse_single_target(bool with_attributes) {
    Level level(*this);
    if (skip_symbol("(")) {
      Target target = parse_target(")", with_attributes);
      expect(Token::Type::symbol, ")");
      return target;
    }
    Target target{.name = expect_name()};
    for (std::string_view word : {"true", "false", "none", "True", "False", "None"})
      if (target.name == word) fail(fmt::format("'{}' cannot be assigned to", word));
    if (with_attributes && skip_symbol(".")) target.attribute = expect_name();
    return target;
  }

  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) {
  return StatementParser(tokenize(source)).parse();
}

}  // namespace weft::jinja
