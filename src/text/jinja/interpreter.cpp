#include "text/jinja/interpreter.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/library.h"
#include "text/jinja/objects.h"

namespace weft::jinja {

Interpreter::Interpreter(const std::tm& now) : now_(now), scope_(std::make_shared<Scope>()) {
  define_functions(*this);
}

Interpreter::Inside::Inside(Interpreter& interpreter, std::shared_ptr<Scope> parent)
    : interpreter_(interpreter), before_(std::move(interpreter.scope_)) {
  interpreter_.scope_ = std::make_shared<Scope>();
  interpreter_.scope_->parent = std::move(parent);
}

Value Interpreter::lookup(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get())
    if (const auto found = scope->values.find(name); found != scope->values.end()) return found->second;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    Object* object = lookup(target.name).object();
    if (!object || !object->set_attribute(target.attribute, value))
      wrong("'{}' is no namespace: its attributes cannot be set", target.name);
    return;
  }
  if (target.items.empty()) return set(target.name, value);
  const List items = iterate(value);
  if (items.size() != target.items.size()) wrong("{} values for {} names", items.size(), target.items.size());
  for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
}

Flow Interpreter::run(const Body& body, Text& out) {
  Budget::Level level(budget_);
  for (const auto& statement : body) {
    budget_.step();
    line_ = statement->line;
    if (const Flow flow = statement->run(*this, out); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Text Interpreter::capture(const Body& body) {
  Text text;
  run(body, text);
  return text;
}

Value Interpreter::evaluate(const Expression& expression) {
  Budget::Level level(budget_);
  budget_.step();
  return expression.evaluate(*this);
}

/// Every result of a call passes here, so that no chain of small calls makes more than it may.
Value Interpreter::charged(Value value) {
  if (value.text()) budget_.produce(value.text()->size());
  if (value.items()) budget_.produce(value.items()->size(), sizeof(Value));
  if (value.generator()) budget_.produce(value.generator()->items.size(), sizeof(Value));
  if (value.dict()) budget_.produce(value.dict()->size(), 4 * sizeof(Value));
  return value;
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) wrong("{}", object.reason());
  if (Object* held = object.object()) {
    if (auto value = held->attribute(name)) return *value;
  } else if (const MethodFunction method = find_method(object, name)) {
    return make<BoundMethod>(object, std::string(name), method);
  } else if (is_changing_method(object, name)) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
  } else if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  } else if (object.sequence() && object.sequence()->shape == Sequence::Shape::group) {
    if (name == "grouper") return object.items()->at(0);
    if (name == "list") return object.items()->at(1);
  }
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) wrong("{}", object.reason());
  const bool hashable = !key.dict() && (!key.items() || key.is_tuple());
  if (object.dict() && hashable)
    if (const Value* found = object.dict()->find(budget_, key)) return *found;
  if (const auto index = key.whole(); index && !object.is_view() && (object.items() || object.text())) {
    budget_.step(object.text() ? weight(object) : 1);
    const size_t size = object.items() ? object.items()->size() : character_count(object.text()->bytes());
    const int64_t place = *index < 0 ? *index + static_cast<int64_t>(size) : *index;
    if (place >= 0 && static_cast<size_t>(place) < size) {
      if (object.items()) return (*object.items())[static_cast<size_t>(place)];
      const size_t begin = byte_offset(object.text()->bytes(), static_cast<size_t>(place));
      return object.text()->part(
          begin, begin + byte_offset(std::string_view(object.text()->bytes()).substr(begin), 1));
    }
    return Value::undefined(fmt::format("'{} object' has no item {}", object.type_name(), *index));
  }
  // A dict's methods were looked for by their keys alone.
  if (const Text* name = key.text()) {
    if (object.dict() && !find_method(object, name->bytes()) && !is_changing_method(object, name->bytes()))
      return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name->bytes()));
    return attribute(object, name->bytes());
  }
  return Value::undefined(fmt::format("'{} object' has no such item", object.type_name()));
}

Value Interpreter::attribute_path(const Value& object, const Value& path, const Value* otherwise) {
  Value value = object;
  const auto follow = [&](const Value& key) {
    value = item(value, key);
    if (value.is_undefined() && otherwise) value = *otherwise;
  };
  if (!path.text()) {
    follow(path);
    return value;
  }
  const std::string& names = path.text()->bytes();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    int64_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    const bool whole = !name.empty() && read.ec == std::errc() && read.ptr == name.data() + name.size();
    follow(whole ? Value(number) : Value::words(name));
    begin = end + 1;
  }
  return value;
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) wrong("{}", callee.reason());
  if (!callee.object()) wrong("'{}' object is not callable", callee.type_name());
  budget_.step();
  return charged(callee.object()->call(*this, std::move(arguments)));
}

Value Interpreter::call_method(const Value& object, std::string_view name, Arguments arguments) {
  const MethodFunction method = find_method(object, name);
  if (!method) return call(attribute(object, name), std::move(arguments));
  budget_.step(weight(object));
  return charged(method(*this, object, std::move(arguments)));
}

Value Interpreter::filter(const std::string& name, const Value& value, Arguments arguments) {
  const FilterFunction function = find_filter(name);
  if (!function) wrong("there is no filter '{}'", name);
  Budget::Level level(budget_);
  budget_.step(weight(value));
  return charged(function(*this, value, std::move(arguments)));
}

bool Interpreter::test(const std::string& name, const Value& value, Arguments arguments) {
  const TestFunction function = find_test(name);
  if (!function) wrong("there is no test '{}'", name);
  budget_.step();
  return function(*this, value, std::move(arguments));
}

List Interpreter::iterate(const Value& value) {
  budget_.step(weight(value));
  List items;
  if (value.is_undefined()) return items;
  if (value.items()) {
    budget_.produce(value.items()->size(), sizeof(Value));
    items = *value.items();
  } else if (Generator* generator = value.generator()) {
    items.assign(generator->items.begin() + static_cast<ptrdiff_t>(generator->next), generator->items.end());
    generator->next = generator->items.size();
  } else if (const Dict* dict = value.dict()) {
    budget_.produce(dict->size(), sizeof(Value));
    for (const auto& [key, held] : dict->pairs()) items.push_back(key);
  } else if (const Text* text = value.text()) {
    budget_.produce(text->size(), 6 * sizeof(Value));  // a value, and a text for it
    text->each_character(
        [&](std::string_view character, bool trusted) { items.push_back(Text(character, trusted)); });
  } else {
    wrong("'{}' object is not iterable", value.type_name());
  }
  return items;
}

List bind(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
          size_t required) {
  if (arguments.positional.size() > names.size())
    wrong("{} takes {} arguments, not {}", function, names.size(), arguments.positional.size());
  List bound = std::move(arguments.positional);
  std::vector<bool> given(bound.size(), true);
  bound.resize(names.size());
  given.resize(names.size());
  for (auto& [name, value] : arguments.named) {
    const auto place = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (place == names.size() || given[place]) wrong("{} does not take the argument '{}'", function, name);
    bound[place] = std::move(value);
    given[place] = true;
  }
  for (size_t i = 0; i < required; ++i)
    if (!given[i]) wrong("{} needs the argument '{}'", function, *(names.begin() + i));
  return bound;
}

size_t weight(const Value& value) {
  if (value.text()) return 1 + value.text()->size() / 256;
  if (value.items()) return 1 + value.items()->size() / 16;
  if (value.dict()) return 1 + value.dict()->size() / 16;
  if (value.generator()) return 1 + value.generator()->items.size() / 16;
  return 1;
}

}  // namespace weft::jinja
