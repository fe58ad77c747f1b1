#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

/// The tree of a template. Nodes know how to run themselves; Interpreter has what they run on.
namespace weft::jinja {

struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;
  int line = 0;
  int depth = 1;  ///< levels of nodes below and with this one
};

struct Expression : Node {
  virtual Value evaluate(Interpreter& interpreter) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Constant : Expression {
  Value value;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Name : Expression {
  std::string name;
  Value evaluate(Interpreter& interpreter) const override;
};

struct ListDisplay : Expression {
  std::vector<ExpressionPtr> items;
  bool tuple = false;
  Value evaluate(Interpreter& interpreter) const override;
};

struct DictDisplay : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> pairs;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Attribute : Expression {
  ExpressionPtr object;
  std::string name;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Item : Expression {
  ExpressionPtr object, key;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Slice : Expression {
  ExpressionPtr object, begin, end, step;  ///< all but the object may be null
  Value evaluate(Interpreter& interpreter) const override;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional, more_named;  ///< *x and **x, or null

  Arguments evaluate(Interpreter& interpreter) const;
};

struct Call : Expression {
  ExpressionPtr callee;
  CallArguments arguments;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Filter : Expression {
  ExpressionPtr input;  ///< null in a filter block: its text is the input
  std::string name;
  CallArguments arguments;
  Value evaluate(Interpreter& interpreter) const override;
  Value apply(Interpreter& interpreter, const Value& value) const;
};

struct Test : Expression {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Unary : Expression {
  enum class Op { negate, plus, invert };  ///< invert is `not`
  Op op = Op::negate;
  ExpressionPtr operand;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Arithmetic : Expression {
  std::string_view op;  ///< + - * / // % **
  ExpressionPtr left, right;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Logic : Expression {
  bool is_and = false;
  ExpressionPtr left, right;
  Value evaluate(Interpreter& interpreter) const override;
};

struct Concatenation : Expression {
  std::vector<ExpressionPtr> parts;
  Value evaluate(Interpreter& interpreter) const override;
};

/// a < b <= c: true when each pair holds.
struct Comparison : Expression {
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>>
      rest;  ///< operator ("in", "not in" too) and its right side
  Value evaluate(Interpreter& interpreter) const override;
};

struct Conditional : Expression {
  ExpressionPtr condition, yes, no;  ///< `no` may be null: then undefined
  Value evaluate(Interpreter& interpreter) const override;
};

enum class Flow { next, leave_loop, next_round };

struct Statement : Node {
  virtual Flow run(Interpreter& interpreter, Text& out) const = 0;
};
using Body = std::vector<std::unique_ptr<const Statement>>;

/// What may stand on the left of an assignment: x, (x, y), namespace.x.
struct Target {
  std::string name, attribute;
  std::vector<Target> items;  ///< not empty: a tuple
};

struct Data : Statement {
  std::string text;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct Output : Statement {
  ExpressionPtr value;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct If : Statement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;  ///< a null condition is the else
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct For : Statement {
  Target target;
  ExpressionPtr iterable, condition;  ///< the condition may be null
  bool recursive = false;
  Body body, otherwise;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct LoopControl : Statement {
  Flow flow = Flow::next;
  Flow run(Interpreter&, Text&) const override { return flow; }
};

struct Set : Statement {
  Target target;
  ExpressionPtr value;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct SetBlock : Statement {
  Target target;
  std::vector<std::unique_ptr<const Filter>> filters;
  Body body;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct FilterBlock : Statement {
  std::vector<std::unique_ptr<const Filter>> filters;
  Body body;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

/// {% with %}, {% generation %}, {% block %}, {% autoescape %}: a body with names of its own.
struct Block : Statement {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct Parameters {
  std::vector<std::pair<std::string, ExpressionPtr>> list;  ///< name and default; no default is null
};

/// The code of a macro, or of a call block's body.
struct MacroCode {
  std::string name;
  Parameters parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct MacroStatement : Statement {
  MacroCode code;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

struct CallBlock : Statement {
  std::unique_ptr<const Call> call;
  MacroCode caller;
  Flow run(Interpreter& interpreter, Text& out) const override;
};

}  // namespace weft::jinja
