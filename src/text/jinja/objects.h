#pragma once

#include <map>
#include <memory>
#include <string>

#include "text/jinja/interpreter.h"
#include "text/jinja/library.h"

namespace weft::jinja {

struct Function : Object {
  using Code = Value (*)(Interpreter&, Arguments);
  Function(std::string_view name_, Code code_) : name(name_), code(code_) {}
  std::string describe() const override { return fmt::format("<function {}>", name); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    return code(interpreter, std::move(arguments));
  }

  std::string_view name;
  Code code;
};

/// `x.upper` without its call.
struct BoundMethod : Object {
  BoundMethod(Value self_, std::string name_, MethodFunction method_)
      : self(std::move(self_)), name(std::move(name_)), method(method_) {}
  std::string describe() const override { return fmt::format("<built-in method {}>", name); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    return method(interpreter, self, std::move(arguments));
  }

  Value self;
  std::string name;
  MethodFunction method;
};

struct Namespace : Object {
  std::string describe() const override { return "<Namespace>"; }
  std::optional<Value> attribute(std::string_view name) override;
  bool set_attribute(std::string_view name, const Value& value) override;

  std::map<std::string, Value, std::less<>> values;
};

/// A macro, or the body of a call block, with the names that it sees.
struct Macro : Object {
  Macro(const MacroCode& code_, std::shared_ptr<Scope> scope_) : code(code_), scope(std::move(scope_)) {}
  std::string describe() const override { return fmt::format("<Macro '{}'>", code.name); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override;
  std::optional<Value> attribute(std::string_view name) override;

  const MacroCode& code;
  std::shared_ptr<Scope> scope;
};

/// The variable `loop` of a for.
struct Loop : Object {
  Loop(const For& statement_, Interpreter& interpreter_, List items_, size_t depth_)
      : statement(statement_),
        interpreter(interpreter_),
        scope(interpreter_.scope()),
        items(std::move(items_)),
        depth(depth_) {}
  std::string describe() const override {
    return fmt::format("<LoopContext {}/{}>", index + 1, items.size());
  }
  bool callable() const override { return statement.recursive; }
  size_t length() const override { return items.size(); }
  std::optional<Value> attribute(std::string_view name) override;
  /// The loop once more, over other items.
  Value call(Interpreter& interpreter, Arguments arguments) override;
  Flow run(Text& out);

  const For& statement;
  Interpreter& interpreter;
  std::shared_ptr<Scope> scope;  // around the loop
  List items;
  size_t depth, index = 0;
  std::optional<List> last_seen;  // by changed()
};

}  // namespace weft::jinja
