#include "text/jinja/ast.h"
#include "text/jinja/library.h"
#include "text/jinja/operators.h"

namespace weft::jinja {

Value Constant::evaluate(Interpreter&) const {
  return value;
}

Value Name::evaluate(Interpreter& interpreter) const {
  return interpreter.lookup(name);
}

Value ListDisplay::evaluate(Interpreter& interpreter) const {
  interpreter.budget().produce(items.size(), sizeof(Value));
  List values;
  for (const ExpressionPtr& item : items) values.push_back(interpreter.evaluate(*item));
  return {std::move(values), tuple ? Sequence::Shape::tuple : Sequence::Shape::list};
}

Value DictDisplay::evaluate(Interpreter& interpreter) const {
  interpreter.budget().produce(pairs.size(), 4 * sizeof(Value));
  Dict dict;
  for (const auto& [key, value] : pairs) {
    const Value made = interpreter.evaluate(*key);
    dict.set(interpreter.budget(), made, interpreter.evaluate(*value));
  }
  return dict;
}

Value Attribute::evaluate(Interpreter& interpreter) const {
  return interpreter.attribute(interpreter.evaluate(*object), name);
}

Value Item::evaluate(Interpreter& interpreter) const {
  const Value held = interpreter.evaluate(*object);
  return interpreter.item(held, interpreter.evaluate(*key));
}

Value Slice::evaluate(Interpreter& interpreter) const {
  const auto bound = [&](const ExpressionPtr& part) {
    return part ? interpreter.evaluate(*part) : Value(None{});
  };
  const Value held = interpreter.evaluate(*object), first = bound(begin), last = bound(end), by = bound(step);
  return slice(interpreter, held, first, last, by);
}

Arguments CallArguments::evaluate(Interpreter& interpreter) const {
  Arguments arguments;
  for (const ExpressionPtr& value : positional) arguments.positional.push_back(interpreter.evaluate(*value));
  for (const auto& [name, value] : named) arguments.named.emplace_back(name, interpreter.evaluate(*value));
  if (more_positional)
    for (Value& value : interpreter.iterate(interpreter.evaluate(*more_positional)))
      arguments.positional.push_back(std::move(value));
  if (more_named) {
    const Value more = interpreter.evaluate(*more_named);
    if (!more.dict()) wrong("the argument after ** must be a mapping, not {}", more.type_name());
    for (const auto& [name, value] : more.dict()->pairs()) {
      if (!name.text()) wrong("keywords must be strings");
      arguments.named.emplace_back(name.text()->bytes(), value);
    }
  }
  return arguments;
}

Value Call::evaluate(Interpreter& interpreter) const {
  if (const auto* member = dynamic_cast<const Attribute*>(callee.get())) {
    const Value object = interpreter.evaluate(*member->object);
    return interpreter.call_method(object, member->name, arguments.evaluate(interpreter));
  }
  const Value called = interpreter.evaluate(*callee);
  return interpreter.call(called, arguments.evaluate(interpreter));
}

Value Filter::evaluate(Interpreter& interpreter) const {
  return apply(interpreter, interpreter.evaluate(*input));
}

Value Filter::apply(Interpreter& interpreter, const Value& value) const {
  return interpreter.filter(name, value, arguments.evaluate(interpreter));
}

Value Test::evaluate(Interpreter& interpreter) const {
  const Value value = interpreter.evaluate(*input);
  return interpreter.test(name, value, arguments.evaluate(interpreter));
}

Value Unary::evaluate(Interpreter& interpreter) const {
  const Value value = interpreter.evaluate(*operand);
  if (op == Op::invert) return !value.truthy();
  if (op == Op::negate) return negate(value);
  if (!value.is_number()) wrong("bad operand type for unary +: '{}'", value.type_name());
  return value.boolean() ? Value(*value.whole()) : value;
}

Value Arithmetic::evaluate(Interpreter& interpreter) const {
  const Value a = interpreter.evaluate(*left);
  return arithmetic(interpreter, op, a, interpreter.evaluate(*right));
}

Value Logic::evaluate(Interpreter& interpreter) const {
  Value value = interpreter.evaluate(*left);
  return value.truthy() == is_and ? interpreter.evaluate(*right) : value;
}

Value Concatenation::evaluate(Interpreter& interpreter) const {
  Text text;
  for (const ExpressionPtr& part : parts) {
    const Text more = to_text(interpreter.budget(), interpreter.evaluate(*part));
    interpreter.budget().produce(more.size());
    text.append(more);
  }
  return text;
}

Value Comparison::evaluate(Interpreter& interpreter) const {
  Value value = interpreter.evaluate(*first);
  for (const auto& [op, expression] : rest) {
    Value other = interpreter.evaluate(*expression);
    if (!compares(interpreter, op, value, other)) return false;
    value = std::move(other);
  }
  return true;
}

Value Conditional::evaluate(Interpreter& interpreter) const {
  if (interpreter.evaluate(*condition).truthy()) return interpreter.evaluate(*yes);
  return no ? interpreter.evaluate(*no) : Value::undefined("the inline if has no else");
}

}  // namespace weft::jinja
