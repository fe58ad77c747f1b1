#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"

namespace weft::jinja {

class Dict;
class Interpreter;
class Object;
class Value;
using List = std::vector<Value>;

struct Undefined {
  std::shared_ptr<const std::string> reason;  ///< null: nothing more is known
};
struct None {};
struct String {
  std::shared_ptr<const Text> text;
  bool markup = false;  ///< went through `safe` or `escape`: adding to it escapes the other side
};
/// A whole number of the input above 64 bits: it can be shown and compared, and not be counted with.
struct Huge {
  std::shared_ptr<const std::string> digits;
  double nearest = 0;
};
struct Sequence {
  /// A group is what `groupby` makes: (grouper, list). Keys, values and items are views of a dict: they can
  /// be gone through and have a length, but no item can be asked for.
  enum class Shape { list, tuple, group, keys, values, items };
  std::shared_ptr<const List> items;
  Shape shape = Shape::list;
};
/// What `map`, `select` and others give: it can be gone through once, and knows no length.
struct Generator {
  List items;
  size_t next = 0;
};

/// A value of the template language: Python's, as far as templates can see them. Strings, lists and dicts do
/// not change once they are made.
class Value {
 public:
  Value() = default;  ///< undefined
  Value(None none) : data_(none) {}
  Value(bool truth) : data_(truth) {}
  Value(int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(Huge number) : data_(std::move(number)) {}
  Value(Text text) : data_(String{std::make_shared<const Text>(std::move(text))}) {}
  Value(String string) : data_(std::move(string)) {}
  Value(List items, Sequence::Shape shape = Sequence::Shape::list)
      : data_(Sequence{std::make_shared<const List>(std::move(items)), shape}) {}
  Value(Dict dict);
  Value(Object* object) : data_(object) {}
  Value(const void*) = delete;  // a pointer is no truth

  static Value undefined(std::string reason) {
    Value value;
    value.data_ = Undefined{std::make_shared<const std::string>(std::move(reason))};
    return value;
  }
  static Value words(std::string_view own) { return Text(own, true); }  ///< the template's, or weft's own
  static Value generator(List items) {
    Value value;
    value.data_ = std::make_shared<Generator>(Generator{std::move(items)});
    return value;
  }

  // Null when the value is of another kind.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Huge* huge() const { return std::get_if<Huge>(&data_); }
  const String* string() const { return std::get_if<String>(&data_); }
  const Text* text() const { return string() ? string()->text.get() : nullptr; }
  const Sequence* sequence() const { return std::get_if<Sequence>(&data_); }
  const List* items() const { return sequence() ? sequence()->items.get() : nullptr; }
  const Dict* dict() const;
  Generator* generator() const;
  Object* object() const;

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_tuple() const { return sequence() && !is_list() && !is_view(); }
  bool is_list() const { return sequence() && sequence()->shape == Sequence::Shape::list; }
  bool is_view() const { return sequence() && sequence()->shape >= Sequence::Shape::keys; }
  bool is_number() const { return integer() || real() || boolean() || huge(); }

  /// Booleans are 0 and 1, as in Python. nullopt for what is no whole number, or a huge one.
  std::optional<int64_t> whole() const;
  std::optional<double> number() const;
  std::string reason() const;  ///< why it is undefined

  bool truthy() const;
  std::string_view type_name() const;  ///< Python's
  /// Equality without looking inside: of lists, dicts and objects their identity.
  bool same_as(const Value& other) const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, String, Sequence, std::shared_ptr<const Dict>,
               std::shared_ptr<Generator>, Object*, Huge>
      data_;
};

/// Pairs in the order in which their keys came.
class Dict {
 public:
  using Pair = std::pair<Value, Value>;

  void set(Budget& budget, const Value& key, Value value);  ///< an unhashable key is a failure
  const Value* find(Budget& budget, const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Pair>& pairs() const { return pairs_; }
  size_t size() const { return pairs_.size(); }

 private:
  std::vector<Pair> pairs_;
  std::unordered_map<std::string, size_t> places_;  // by hash_key
};

struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Something with a life of its own: macros, functions, loop variables, namespaces. The interpreter owns
/// them.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string describe() const = 0;
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments arguments);
  virtual std::optional<Value> attribute(std::string_view name);
  /// False when this object takes no attributes: only a namespace does.
  virtual bool set_attribute(std::string_view, const Value&) { return false; }
  virtual size_t length() const { return 1; }  ///< 0 is false in a condition
};

/// Equal for equal keys of a dict: 1, 1.0 and true are one key. Fails for lists and dicts.
std::string hash_key(Budget& budget, const Value& value);

bool equal(Budget& budget, const Value& a, const Value& b);
/// Less than zero, zero, greater. Fails where Python cannot order the two.
int compare(Budget& budget, const Value& a, const Value& b);

Text to_text(Budget& budget, const Value& value);  ///< Python's str()
Text repr(Budget& budget, const Value& value);
std::string repr(double number);

}  // namespace weft::jinja
