#include <algorithm>

#include "text/jinja/objects.h"

namespace weft::jinja {
namespace {

void write(Interpreter& interpreter, Text& out, const Text& text) {
  interpreter.budget().produce(text.size());
  out.append(text);
}

Value filtered(Interpreter& interpreter, const std::vector<std::unique_ptr<const Filter>>& filters,
               Text text) {
  Value value(std::move(text));
  for (const auto& filter : filters) value = filter->apply(interpreter, value);
  return value;
}

/// Gives a macro its arguments, those without a value their defaults.
void bind_parameters(Interpreter& interpreter, const MacroCode& code, Arguments arguments) {
  size_t next = 0;
  const auto named = [&](const std::string& name) {
    return std::ranges::find(arguments.named, name, [](const auto& pair) { return pair.first; });
  };
  for (const auto& [name, otherwise] : code.parameters.list) {
    const auto given = named(name);
    if (next < arguments.positional.size()) {
      if (given != arguments.named.end()) wrong("macro '{}' got two values for '{}'", code.name, name);
      interpreter.set(name, arguments.positional[next++]);
    } else if (given != arguments.named.end()) {
      interpreter.set(name, given->second);
      arguments.named.erase(given);
    } else if (otherwise) {
      interpreter.set(name, interpreter.evaluate(*otherwise));
    } else {
      interpreter.set(name, Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  if (code.uses_caller) {
    const auto caller = named("caller");
    interpreter.set("caller",
                    caller == arguments.named.end() ? Value::undefined("No caller defined") : caller->second);
    if (caller != arguments.named.end()) arguments.named.erase(caller);
  }
  if (code.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(interpreter.budget(), Value::words(name), value);
    interpreter.set("kwargs", std::move(rest));
  } else if (!arguments.named.empty()) {
    wrong("macro '{}' takes no argument '{}'", code.name, arguments.named.front().first);
  }
  const auto begin = arguments.positional.begin() + static_cast<ptrdiff_t>(next);
  if (code.uses_varargs)
    interpreter.set("varargs", Value(List(begin, arguments.positional.end()), Sequence::Shape::tuple));
  else if (begin != arguments.positional.end())
    wrong("macro '{}' takes not more than {} arguments", code.name, code.parameters.list.size());
}

/// The items that a for goes through: those for which its condition holds.
List selected(Interpreter& interpreter, const For& statement, const Value& iterable) {
  List items = interpreter.iterate(iterable);
  if (!statement.condition) return items;
  List kept;
  for (Value& item : items) {
    Interpreter::Inside inside(interpreter, interpreter.scope());
    interpreter.assign(statement.target, item);
    if (interpreter.evaluate(*statement.condition).truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

}  // namespace

Flow Data::run(Interpreter& interpreter, Text& out) const {
  interpreter.budget().produce(text.size());
  out.append(text, true);
  return Flow::next;
}

Flow Output::run(Interpreter& interpreter, Text& out) const {
  const Value written = interpreter.evaluate(*value);
  if (written.text())
    write(interpreter, out, *written.text());
  else
    write(interpreter, out, to_text(interpreter.budget(), written));
  return Flow::next;
}

Flow If::run(Interpreter& interpreter, Text& out) const {
  for (const auto& [condition, body] : branches)
    if (!condition || interpreter.evaluate(*condition).truthy()) return interpreter.run(body, out);
  return Flow::next;
}

Flow For::run(Interpreter& interpreter, Text& out) const {
  const Value value = interpreter.evaluate(*iterable);
  return interpreter.make<Loop>(*this, interpreter, selected(interpreter, *this, value), 1)->run(out);
}

Flow Set::run(Interpreter& interpreter, Text&) const {
  interpreter.assign(target, interpreter.evaluate(*value));
  return Flow::next;
}

Flow SetBlock::run(Interpreter& interpreter, Text&) const {
  Text text;
  {
    Interpreter::Inside inside(interpreter, interpreter.scope());
    text = interpreter.capture(body);
  }
  interpreter.assign(target, filtered(interpreter, filters, std::move(text)));
  return Flow::next;
}

Flow FilterBlock::run(Interpreter& interpreter, Text& out) const {
  Interpreter::Inside inside(interpreter, interpreter.scope());
  const Value value = filtered(interpreter, filters, interpreter.capture(body));
  write(interpreter, out, to_text(interpreter.budget(), value));
  return Flow::next;
}

Flow Block::run(Interpreter& interpreter, Text& out) const {
  std::vector<Value> values;  // seen from outside the block
  for (const auto& [target, value] : bindings) values.push_back(interpreter.evaluate(*value));
  Interpreter::Inside inside(interpreter, interpreter.scope());
  for (size_t i = 0; i < values.size(); ++i) interpreter.assign(bindings[i].first, values[i]);
  return interpreter.run(body, out);
}

Flow MacroStatement::run(Interpreter& interpreter, Text&) const {
  interpreter.set(code.name, interpreter.make<Macro>(code, interpreter.scope()));
  return Flow::next;
}

Flow CallBlock::run(Interpreter& interpreter, Text& out) const {
  Arguments arguments = call->arguments.evaluate(interpreter);
  arguments.named.emplace_back("caller", interpreter.make<Macro>(caller, interpreter.scope()));
  const Value value = interpreter.call(interpreter.evaluate(*call->callee), std::move(arguments));
  write(interpreter, out, to_text(interpreter.budget(), value));
  return Flow::next;
}

Value Macro::call(Interpreter& interpreter, Arguments arguments) {
  Budget::Level level(interpreter.budget());
  Interpreter::Inside inside(interpreter, scope);
  bind_parameters(interpreter, code, std::move(arguments));
  return interpreter.capture(code.body);
}

std::optional<Value> Macro::attribute(std::string_view name) {
  if (name == "name") return Value::words(code.name);
  if (name == "catch_kwargs") return code.uses_kwargs;
  if (name == "catch_varargs") return code.uses_varargs;
  if (name == "caller") return code.uses_caller;
  if (name != "arguments") return std::nullopt;
  List names;
  for (const auto& [parameter, otherwise] : code.parameters.list) names.push_back(Value::words(parameter));
  return Value(std::move(names), Sequence::Shape::tuple);
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

bool Namespace::set_attribute(std::string_view name, const Value& value) {
  values.insert_or_assign(std::string(name), value);
  return true;
}

Flow Loop::run(Text& out) {
  Budget::Level level(interpreter.budget());
  bool completed = false;  // a round: Jinja2's else runs also when the first one was broken off
  for (index = 0; index < items.size(); ++index) {
    interpreter.budget().step();
    Interpreter::Inside inside(interpreter, scope);
    interpreter.assign(statement.target, items[index]);
    interpreter.set("loop", this);
    const Flow flow = interpreter.run(statement.body, out);
    if (flow == Flow::next) completed = true;
    if (flow == Flow::leave_loop) break;
  }
  return completed ? Flow::next : interpreter.run(statement.otherwise, out);
}

Value Loop::call(Interpreter&, Arguments arguments) {
  if (!statement.recursive) wrong("the loop is not recursive: 'recursive' is missing in its for");
  const Value iterable = bind("loop", std::move(arguments), {"iterable"}, 1)[0];
  Interpreter::Inside inside(interpreter, scope);
  Text text;
  interpreter.make<Loop>(statement, interpreter, selected(interpreter, statement, iterable), depth + 1)
      ->run(text);
  return text;
}

std::optional<Value> Loop::attribute(std::string_view name) {
  const auto number = [](size_t value) { return Value(static_cast<int64_t>(value)); };
  if (name == "index") return number(index + 1);
  if (name == "index0") return number(index);
  if (name == "revindex") return number(items.size() - index);
  if (name == "revindex0") return number(items.size() - index - 1);
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == items.size();
  if (name == "length") return number(items.size());
  if (name == "depth") return number(depth);
  if (name == "depth0") return number(depth - 1);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : items[index - 1];
  if (name == "nextitem")
    return index + 1 < items.size() ? items[index + 1] : Value::undefined("there is no next item");
  const auto bound = [&](MethodFunction method) {
    return interpreter.make<BoundMethod>(Value(this), std::string(name), method);
  };
  if (name == "cycle")
    return bound([](Interpreter&, const Value& self, Arguments arguments) {
      if (arguments.positional.empty()) wrong("loop.cycle needs items");
      const auto* loop = static_cast<const Loop*>(self.object());
      return arguments.positional[loop->index % arguments.positional.size()];
    });
  if (name == "changed")
    return bound([](Interpreter& running, const Value& self, Arguments arguments) {
      auto* loop = static_cast<Loop*>(self.object());
      const bool same = loop->last_seen && equal(running.budget(), *loop->last_seen, arguments.positional);
      loop->last_seen = std::move(arguments.positional);
      return Value(!same);
    });
  return std::nullopt;
}

}  // namespace weft::jinja
