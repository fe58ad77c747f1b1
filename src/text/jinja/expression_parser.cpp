#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

namespace weft::jinja {
namespace {

using Type = Token::Type;

constexpr int kMaxDepth = 500;  // of a tree: a chain of this many filters or additions
constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

bool ExpressionParser::mentions(std::string_view name, size_t begin) const {
  return std::any_of(tokens_.begin() + static_cast<ptrdiff_t>(begin),
                     tokens_.begin() + static_cast<ptrdiff_t>(at_),
                     [&](const Token& token) { return token.is(Type::name, name); });
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  const bool found = current().is(Type::symbol, symbol);
  if (found) next();
  return found;
}

bool ExpressionParser::skip_name(std::string_view name) {
  const bool found = current().is(Type::name, name);
  if (found) next();
  return found;
}

void ExpressionParser::expect(Type type, std::string_view spelling) {
  if (!current().is(type, spelling))
    fail(fmt::format("expected '{}', got '{}'", spelling,
                     current().type == Type::end ? "the end of the template" : current().text));
  next();
}

std::string ExpressionParser::expect_name() {
  if (current().type != Type::name) fail(fmt::format("expected a name, got '{}'", current().text));
  return next().text;
}

ExpressionPtr ExpressionParser::adopt(Node& parent, ExpressionPtr child) const {
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxDepth) fail("an expression is nested too deeply");
  return child;
}

ExpressionPtr ExpressionParser::parse_expression(bool conditional) {
  Level level(*this);
  ExpressionPtr node = parse_or();
  while (conditional && skip_name("if")) {
    auto choice = make<Conditional>();
    choice->yes = adopt(*choice, std::move(node));
    choice->condition = adopt(*choice, parse_or());
    if (skip_name("else")) choice->no = adopt(*choice, parse_expression());
    node = std::move(choice);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditional) {
  ExpressionPtr first = parse_expression(conditional);
  if (!current().is(Type::symbol, ",")) return first;
  auto tuple = make<ListDisplay>();
  tuple->tuple = true;
  tuple->items.push_back(adopt(*tuple, std::move(first)));
  while (skip_symbol(",")) {
    const bool ends = current().type == Type::variable_end || current().type == Type::block_end ||
                      current().is(Type::symbol, ")");
    if (ends) break;
    tuple->items.push_back(adopt(*tuple, parse_expression(conditional)));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (skip_name("or")) {
    auto node = make<Logic>();
    node->left = adopt(*node, std::move(left));
    node->right = adopt(*node, parse_and());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (skip_name("and")) {
    auto node = make<Logic>();
    node->is_and = true;
    node->left = adopt(*node, std::move(left));
    node->right = adopt(*node, parse_not());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!skip_name("not")) return parse_comparison();
  Level level(*this);
  auto node = make<Unary>();
  node->op = Unary::Op::invert;
  node->operand = adopt(*node, parse_not());
  return node;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  ExpressionPtr first = parse_sum();
  auto node = make<Comparison>();
  while (true) {
    std::string op;
    if (current().type == Type::symbol &&
        std::ranges::find(kComparisons, current().text) != std::end(kComparisons)) {
      op = next().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (current().is(Type::name, "not") && look().is(Type::name, "in")) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    node->rest.emplace_back(op, adopt(*node, parse_sum()));
  }
  if (node->rest.empty()) return first;
  node->first = adopt(*node, std::move(first));
  return node;
}

template <typename Operand>
ExpressionPtr ExpressionParser::parse_left(std::initializer_list<std::string_view> symbols,
                                           const Operand& operand) {
  ExpressionPtr left = operand();
  while (current().type == Type::symbol) {
    const auto* symbol = std::ranges::find(symbols, current().text);
    if (symbol == symbols.end()) break;
    auto node = make<Arithmetic>();
    node->op = *symbol;
    next();
    node->left = adopt(*node, std::move(left));
    node->right = adopt(*node, operand());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_left({"+", "-"}, [&] { return parse_concatenation(); });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!current().is(Type::symbol, "~")) return first;
  auto node = make<Concatenation>();
  node->parts.push_back(adopt(*node, std::move(first)));
  while (skip_symbol("~")) node->parts.push_back(adopt(*node, parse_product()));
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_left({"*", "/", "//", "%"}, [&] { return parse_power(); });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_left({"**"}, [&] { return parse_unary(); });
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  Level level(*this);
  ExpressionPtr node;
  if (current().is(Type::symbol, "-") || current().is(Type::symbol, "+")) {
    auto unary = make<Unary>();
    unary->op = next().text == "-" ? Unary::Op::negate : Unary::Op::plus;
    unary->operand = adopt(*unary, parse_unary(false));
    node = std::move(unary);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  switch (current().type) {
    case Type::name:
      return parse_name();
    case Type::string: {
      auto node = make<Constant>();
      std::string text;
      while (current().type == Type::string) text += next().text;
      node->value = Value::words(text);
      return node;
    }
    case Type::integer:
    case Type::real:
      return parse_number();
    default:
      break;
  }
  if (skip_symbol("(")) {
    if (skip_symbol(")")) {
      auto empty = make<ListDisplay>();
      empty->tuple = true;
      return empty;
    }
    ExpressionPtr node = parse_tuple();
    expect(Type::symbol, ")");
    return node;
  }
  if (current().is(Type::symbol, "[")) return parse_list();
  if (current().is(Type::symbol, "{")) return parse_dict();
  fail(fmt::format("unexpected '{}'", current().type == Type::end ? "end of the template" : current().text));
}

ExpressionPtr ExpressionParser::parse_name() {
  auto constant = make<Constant>();
  auto node = make<Name>();
  node->name = next().text;
  if (node->name == "true" || node->name == "True")
    constant->value = true;
  else if (node->name == "false" || node->name == "False")
    constant->value = false;
  else if (node->name == "none" || node->name == "None")
    constant->value = None{};
  else
    return node;
  return constant;
}

ExpressionPtr ExpressionParser::parse_number() {
  auto node = make<Constant>();
  const Token& token = next();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  std::from_chars_result read{};
  if (token.type == Type::real) {
    double number = 0;
    read = std::from_chars(begin, end, number);
    node->value = number;
  } else {
    int64_t number = 0;
    const char kind = token.text.size() > 2 ? static_cast<char>(token.text[1] | 0x20) : '0';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    read = std::from_chars(base == 10 ? begin : begin + 2, end, number, base);
    node->value = number;
  }
  if (read.ec != std::errc() || read.ptr != end) fail(fmt::format("'{}' is no number", token.text));
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = make<ListDisplay>();
  next();
  while (!skip_symbol("]")) {
    if (!node->items.empty()) expect(Type::symbol, ",");
    if (skip_symbol("]")) break;
    node->items.push_back(adopt(*node, parse_expression()));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = make<DictDisplay>();
  next();
  while (!skip_symbol("}")) {
    if (!node->pairs.empty()) expect(Type::symbol, ",");
    if (skip_symbol("}")) break;
    ExpressionPtr key = adopt(*node, parse_expression());
    expect(Type::symbol, ":");
    node->pairs.emplace_back(std::move(key), adopt(*node, parse_expression()));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (current().is(Type::symbol, ".") || current().is(Type::symbol, "["))
      node = parse_subscript(std::move(node));
    else if (current().is(Type::symbol, "("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
  while (true) {
    if (skip_symbol("|"))
      node = parse_filter_call(std::move(node));
    else if (skip_name("is"))
      node = parse_test(std::move(node));
    else if (current().is(Type::symbol, "("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  if (skip_symbol(".")) {
    if (current().type == Type::integer) {
      auto node = make<Item>();
      node->object = adopt(*node, std::move(object));
      node->key = parse_number();
      return node;
    }
    auto node = make<Attribute>();
    node->object = adopt(*node, std::move(object));
    node->name = expect_name();
    return node;
  }
  next();
  ExpressionPtr begin = current().is(Type::symbol, ":") ? nullptr : parse_tuple();
  if (!skip_symbol(":")) {
    auto node = make<Item>();
    node->object = adopt(*node, std::move(object));
    node->key = adopt(*node, std::move(begin));
    expect(Type::symbol, "]");
    return node;
  }
  auto node = make<Slice>();
  node->object = adopt(*node, std::move(object));
  if (begin) node->begin = adopt(*node, std::move(begin));
  const auto ends = [&] { return current().is(Type::symbol, ":") || current().is(Type::symbol, "]"); };
  if (!ends()) node->end = adopt(*node, parse_expression());
  if (skip_symbol(":") && !ends()) node->step = adopt(*node, parse_expression());
  expect(Type::symbol, "]");
  return node;
}

CallArguments ExpressionParser::parse_arguments(Node& parent) {
  CallArguments arguments;
  expect(Type::symbol, "(");
  for (bool first = true; !skip_symbol(")"); first = false) {
    if (!first) expect(Type::symbol, ",");
    if (skip_symbol(")")) break;
    const bool dynamic = arguments.more_positional || arguments.more_named;
    if (skip_symbol("*")) {
      if (dynamic) fail("'*' must come once, and before '**'");
      arguments.more_positional = adopt(parent, parse_expression());
    } else if (skip_symbol("**")) {
      if (arguments.more_named) fail("'**' must come once");
      arguments.more_named = adopt(parent, parse_expression());
    } else if (current().type == Type::name && look().is(Type::symbol, "=")) {
      std::string name = next().text;
      next();
      arguments.named.emplace_back(std::move(name), adopt(parent, parse_expression()));
    } else {
      if (dynamic || !arguments.named.empty()) fail("a positional argument follows a named one");
      arguments.positional.push_back(adopt(parent, parse_expression()));
    }
  }
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = make<Call>();
  node->callee = adopt(*node, std::move(callee));
  node->arguments = parse_arguments(*node);
  return node;
}

std::unique_ptr<Filter> ExpressionParser::parse_filter_call(ExpressionPtr input) {
  auto node = make<Filter>();
  if (input) node->input = adopt(*node, std::move(input));
  node->name = expect_name();
  while (skip_symbol(".")) node->name += "." + expect_name();
  if (current().is(Type::symbol, "(")) node->arguments = parse_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  auto node = make<Test>();
  const bool negated = skip_name("not");
  node->input = adopt(*node, std::move(input));
  node->name = expect_name();
  while (skip_symbol(".")) node->name += "." + expect_name();
  const Token& token = current();
  const bool word = token.type == Type::name;
  const bool begins_value = word || token.type == Type::string || token.type == Type::integer ||
                            token.type == Type::real || token.is(Type::symbol, "[") ||
                            token.is(Type::symbol, "{");
  const bool goes_on = word && (token.text == "else" || token.text == "or" || token.text == "and");
  if (token.is(Type::symbol, "(")) {
    node->arguments = parse_arguments(*node);
  } else if (begins_value && !goes_on) {
    if (token.is(Type::name, "is")) fail("tests cannot be chained");
    node->arguments.positional.push_back(adopt(*node, parse_postfix(parse_primary())));
  }
  if (!negated) return node;
  auto inverted = make<Unary>();
  inverted->op = Unary::Op::invert;
  inverted->operand = adopt(*inverted, std::move(node));
  return inverted;
}

}  // namespace weft::jinja
