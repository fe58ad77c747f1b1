#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace weft::jinja {

/// Expressions, with Jinja2's precedence; the statements' parser builds on it.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // `conditional`: "a if b else c" is allowed at the top.
  ExpressionPtr parse_expression(bool conditional = true);
  ExpressionPtr parse_tuple(bool conditional = true);  ///< one expression, or several with commas between
  /// A filter's name and arguments, behind the '|'. Without an input it is a block's.
  std::unique_ptr<Filter> parse_filter_call(ExpressionPtr input);

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  size_t position() const { return at_; }
  bool mentions(std::string_view name, size_t begin) const;  ///< since the token at `begin`

  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect(Token::Type type, std::string_view spelling);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& what) const { throw Failure(what, current().line); }

  template <typename T>
  std::unique_ptr<T> make() const {
    auto node = std::make_unique<T>();
    node->line = current().line;
    return node;
  }

  /// Brackets in brackets, while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.levels_ > 100) parser_.fail("an expression is nested too deeply");
    }
    ~Level() { --parser_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  /// `child` becomes a part of `parent`: the tree must not become too deep to be walked.
  ExpressionPtr adopt(Node& parent, ExpressionPtr child) const;

  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_call(ExpressionPtr callee);
  CallArguments parse_arguments(Node& parent);
  /// One of `symbols` between each two operands, from left to right.
  template <typename Operand>
  ExpressionPtr parse_left(std::initializer_list<std::string_view> symbols, const Operand& operand);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int levels_ = 0;
};

}  // namespace weft::jinja
