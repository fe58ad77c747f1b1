#pragma once

#include <ctime>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace weft::jinja {

/// Names of one block, and those of the blocks around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>> values;
};

/// Runs one template once. It owns every object that the template makes, so that objects which know each
/// other end with it.
class Interpreter {
 public:
  /// `now` is what strftime_now shows.
  explicit Interpreter(const std::tm& now);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Budget& budget() { return budget_; }
  const std::tm& now() const { return now_; }
  int line() const { return line_; }  ///< of the statement or call that runs

  void set(std::string_view name, Value value) {
    scope_->values.insert_or_assign(std::string(name), std::move(value));
  }
  Value lookup(const std::string& name) const;
  void assign(const Target& target, const Value& value);

  Flow run(const Body& body, Text& out);
  Text capture(const Body& body);  ///< what the body writes
  Value evaluate(const Expression& expression);

  // As Jinja2's sandbox finds them: undefined where there is none.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  /// "a.b.0", or a number; an undefined step gives `otherwise` where there is one.
  Value attribute_path(const Value& object, const Value& path, const Value* otherwise = nullptr);

  Value call(const Value& callee, Arguments arguments);
  Value call_method(const Value& object, std::string_view name, Arguments arguments);
  Value filter(const std::string& name, const Value& value, Arguments arguments);
  bool test(const std::string& name, const Value& value, Arguments arguments);

  /// The items that a loop over `value` sees; a generator is empty afterwards. Fails for what has none.
  List iterate(const Value& value);

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    budget_.produce(sizeof(T) + 64);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* result = object.get();
    objects_.push_back(std::move(object));
    return result;
  }

  const std::shared_ptr<Scope>& scope() const { return scope_; }
  /// Names inside `parent`, for as long as this lives.
  class Inside {
   public:
    Inside(Interpreter& interpreter, std::shared_ptr<Scope> parent);
    ~Inside() { interpreter_.scope_ = std::move(before_); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> before_;
  };

 private:
  Value charged(Value value);

  Budget budget_;
  std::tm now_;
  int line_ = 0;
  std::shared_ptr<Scope> scope_;
  std::vector<std::unique_ptr<Object>> objects_;
};

/// The arguments in the order of `names`, given by place or by name; undefined where one is left out.
List bind(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
          size_t required = 0);

/// Steps that looking at a whole value takes.
size_t weight(const Value& value);

}  // namespace weft::jinja
