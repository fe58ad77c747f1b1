#include <utility>

#include "text/jinja/objects.h"

namespace weft::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja2's sandbox

Value range(Interpreter& interpreter, Arguments arguments) {
  if (arguments.positional.size() == 1) arguments.positional.insert(arguments.positional.begin(), int64_t{0});
  const List given = bind("range", std::move(arguments), {"start", "stop", "step"}, 2);
  for (const Value& value : given)
    if (!value.is_undefined() && !value.whole())
      wrong("range: a whole number is needed, not '{}'", value.type_name());
  if (!given[0].whole() || !given[1].whole()) wrong("range: a bound is undefined");
  const int64_t start = *given[0].whole(), stop = *given[1].whole(), step = given[2].whole().value_or(1);
  if (step == 0) wrong("range: the step must not be zero");
  List numbers;
  for (int64_t number = start; step > 0 ? number < stop : number > stop;) {
    if (numbers.size() >= kMaxRange) wrong("range: more than {} numbers", kMaxRange);
    numbers.emplace_back(number);
    if (__builtin_add_overflow(number, step, &number)) break;
  }
  interpreter.budget().step(numbers.size());
  return numbers;
}

/// Pairs of a dict or of a list of pairs, then the named arguments.
Dict dict_of(Interpreter& interpreter, Arguments arguments) {
  Dict dict;
  Budget& budget = interpreter.budget();
  if (arguments.positional.size() > 1) wrong("dict takes one argument, not {}", arguments.positional.size());
  for (const Value& source : arguments.positional) {
    if (source.dict()) {
      dict = *source.dict();
      continue;
    }
    for (const Value& pair : interpreter.iterate(source)) {
      List both = interpreter.iterate(pair);
      if (both.size() != 2) wrong("dict: a pair has {} parts", both.size());
      dict.set(budget, both[0], std::move(both[1]));
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(budget, Value::words(name), std::move(value));
  return dict;
}

Value dict(Interpreter& interpreter, Arguments arguments) {
  return dict_of(interpreter, std::move(arguments));
}

Value make_namespace(Interpreter& interpreter, Arguments arguments) {
  auto* made = interpreter.make<Namespace>();
  const Dict initial = dict_of(interpreter, std::move(arguments));
  for (const auto& [key, value] : initial.pairs())
    made->set_attribute(to_text(interpreter.budget(), key).bytes(), value);
  return made;
}

Value raise_exception(Interpreter& interpreter, Arguments arguments) {
  const List given = bind("raise_exception", std::move(arguments), {"message"}, 1);
  wrong("{}", to_text(interpreter.budget(), given[0]).bytes());
}

Value strftime_now(Interpreter& interpreter, Arguments arguments) {
  const List given = bind("strftime_now", std::move(arguments), {"format"}, 1);
  if (!given[0].text()) wrong("strftime_now: the format must be a string");
  std::string format = given[0].text()->bytes();
  if (format.size() > 1000) wrong("strftime_now: the format is too long");
  if (format.empty()) return Text();
  char buffer[16'384];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &interpreter.now());
  return Value::words({buffer, size});
}

/// cycler("odd", "even"): `next()` gives one after the other, round and round.
struct Cycler : Object {
  Cycler(Interpreter& interpreter_, List items_) : interpreter(interpreter_), items(std::move(items_)) {}
  std::string describe() const override { return "<Cycler>"; }
  std::optional<Value> attribute(std::string_view name) override {
    const auto bound = [&](MethodFunction method) {
      return interpreter.make<BoundMethod>(Value(this), std::string(name), method);
    };
    if (name == "current") return items[at];
    if (name == "next")
      return bound([](Interpreter&, const Value& self, Arguments) {
        auto* cycler = static_cast<Cycler*>(self.object());
        return cycler->items[std::exchange(cycler->at, (cycler->at + 1) % cycler->items.size())];
      });
    if (name == "reset")
      return bound([](Interpreter&, const Value& self, Arguments) -> Value {
        static_cast<Cycler*>(self.object())->at = 0;
        return None{};
      });
    return std::nullopt;
  }

  Interpreter& interpreter;
  List items;
  size_t at = 0;
};

/// joiner(", "): nothing when called first, the separator afterwards.
struct Joiner : Object {
  explicit Joiner(Value separator_) : separator(std::move(separator_)) {}
  std::string describe() const override { return "<Joiner>"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments) override {
    return std::exchange(used, true) ? separator : Value(Text());
  }
  Value separator;
  bool used = false;
};

Value cycler(Interpreter& interpreter, Arguments arguments) {
  if (arguments.positional.empty()) wrong("cycler needs items");
  return interpreter.make<Cycler>(interpreter, std::move(arguments.positional));
}

Value joiner(Interpreter& interpreter, Arguments arguments) {
  List given = bind("joiner", std::move(arguments), {"sep"});
  return interpreter.make<Joiner>(given[0].is_undefined() ? Value::words(", ") : std::move(given[0]));
}

constexpr Row<Function::Code> kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"cycler", cycler},
    {"joiner", joiner},
    {"strftime_now", strftime_now},
};

}  // namespace

void define_functions(Interpreter& interpreter) {
  for (const auto& [name, code] : kFunctions) interpreter.set(name, interpreter.make<Function>(name, code));
}

}  // namespace weft::jinja
