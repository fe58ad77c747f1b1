#include "text/jinja/value.h"

#include <charconv>
#include <cmath>

#include "text/unicode.h"
#include "text/utf8.h"

namespace weft::jinja {
namespace {

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  return !(unicode::category(code) & (unicode::kOther | unicode::kSeparator));
}

/// In quotes, as Python shows a string inside a list.
Text quoted(const Text& text) {
  const std::string& bytes = text.bytes();
  const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const char32_t code = utf8::next(bytes, at);
    if (code == static_cast<char32_t>(quote) || code == '\\')
      (out += '\\') += static_cast<char>(code);
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(code))
      out.append(bytes, begin, at - begin);
    else if (code < 0x100)
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(code));
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    else
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
  }
  return {out + quote, false};
}

void append_repr(Budget& budget, const Value& value, std::string& out) {
  Budget::Level level(budget);
  budget.step();
  const size_t before = out.size();
  if (const Sequence* sequence = value.sequence()) {
    const bool tuple = value.is_tuple();
    if (value.is_view()) (out += value.type_name()) += '(';
    out += tuple ? '(' : '[';
    for (const Value& item : *sequence->items) {
      if (&item != &sequence->items->front()) out += ", ";
      append_repr(budget, item, out);
    }
    if (tuple && sequence->items->size() == 1) out += ',';
    out += tuple ? ')' : ']';
    if (value.is_view()) out += ')';
    return;
  }
  if (const Dict* dict = value.dict()) {
    out += '{';
    for (const auto& [key, item] : dict->pairs()) {
      if (&key != &dict->pairs().front().first) out += ", ";
      append_repr(budget, key, out);
      out += ": ";
      append_repr(budget, item, out);
    }
    out += '}';
    return;
  }
  if (const Text* text = value.text())
    out += quoted(*text).bytes();
  else if (value.is_undefined())
    out += "Undefined";
  else
    out += to_text(budget, value).bytes();
  budget.produce(out.size() - before);
}

}  // namespace

Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

const Dict* Value::dict() const {
  const auto* held = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return held ? held->get() : nullptr;
}

Generator* Value::generator() const {
  const auto* held = std::get_if<std::shared_ptr<Generator>>(&data_);
  return held ? held->get() : nullptr;
}

Object* Value::object() const {
  const auto* held = std::get_if<Object*>(&data_);
  return held ? *held : nullptr;
}

std::optional<int64_t> Value::whole() const {
  if (integer()) return *integer();
  if (boolean()) return *boolean() ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (real()) return *real();
  if (huge()) return huge()->nearest;
  if (const auto value = whole()) return static_cast<double>(*value);
  return std::nullopt;
}

std::string Value::reason() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  return undefined && undefined->reason ? *undefined->reason : "the value is undefined";
}

bool Value::truthy() const {
  if (boolean()) return *boolean();
  if (integer()) return *integer() != 0;
  if (real()) return *real() != 0;
  if (huge()) return true;
  if (text()) return !text()->empty();
  if (items()) return !items()->empty();
  if (dict()) return dict()->size() != 0;
  if (object()) return object()->length() != 0;
  return generator() != nullptr;
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool",      "int",    "float", "str",
                                         "list",      "dict",     "generator", "object", "int"};
  if (is_view()) {
    constexpr std::string_view kViews[] = {"dict_keys", "dict_values", "dict_items"};
    return kViews[static_cast<size_t>(sequence()->shape) - static_cast<size_t>(Sequence::Shape::keys)];
  }
  return is_tuple() ? "tuple" : kNames[data_.index()];
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (boolean()) return *boolean() == *other.boolean();
  if (integer()) return *integer() == *other.integer();
  if (real()) return *real() == *other.real();
  if (huge()) return *huge()->digits == *other.huge()->digits;
  if (text()) return text() == other.text();
  if (items()) return items() == other.items();
  if (dict()) return dict() == other.dict();
  if (generator()) return generator() == other.generator();
  if (object()) return object() == other.object();
  return is_none();
}

void Dict::set(Budget& budget, const Value& key, Value value) {
  const auto [place, is_new] = places_.try_emplace(hash_key(budget, key), pairs_.size());
  if (is_new)
    pairs_.emplace_back(key, std::move(value));
  else
    pairs_[place->second].second = std::move(value);
}

const Value* Dict::find(Budget& budget, const Value& key) const {
  const auto found = places_.find(hash_key(budget, key));
  return found == places_.end() ? nullptr : &pairs_[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = places_.find("s" + std::string(key));
  return found == places_.end() ? nullptr : &pairs_[found->second].second;
}

Value Object::call(Interpreter&, Arguments) {
  wrong("{} is not callable", describe());
}

std::optional<Value> Object::attribute(std::string_view) {
  return std::nullopt;
}

std::string hash_key(Budget& budget, const Value& value) {
  Budget::Level level(budget);
  if (value.text()) {
    budget.step(1 + value.text()->size() / 256);
    return "s" + value.text()->bytes();
  }
  budget.step();
  if (const auto whole = value.whole()) return fmt::format("n{}", *whole);
  if (const double* real = value.real()) {
    // 2^63 and above are no int64, and have no other spelling.
    if (*real == std::trunc(*real) && std::abs(*real) < 9e18)
      return fmt::format("n{}", static_cast<int64_t>(*real));
    return fmt::format("n{}", *real);
  }
  if (value.huge()) return "n" + *value.huge()->digits;
  if (value.is_none()) return "N";
  if (value.is_undefined()) return "U";
  if (value.object()) return fmt::format("o{}", fmt::ptr(value.object()));
  if (value.is_tuple()) {
    std::string key = "(";
    for (const Value& item : *value.items()) {
      const std::string part = hash_key(budget, item);
      key += fmt::format("{}:{}", part.size(), part);
    }
    budget.produce(key.size());
    return key;
  }
  wrong("unhashable type: '{}'", value.type_name());
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  Budget::Level level(budget);
  budget.step();
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.huge() && b.huge()) return a.same_as(b);
  if (a.is_number() && b.is_number()) return *a.number() == *b.number();
  if (a.text() && b.text()) {
    budget.step(a.text()->size() / 256);
    return a.text()->bytes() == b.text()->bytes();
  }
  if (a.items() && b.items()) {
    const List &x = *a.items(), &y = *b.items();
    if (a.type_name() != b.type_name() || x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!equal(budget, x[i], y[i])) return false;
    return true;
  }
  if (a.dict() && b.dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    for (const auto& [key, value] : a.dict()->pairs()) {
      const Value* other = b.dict()->find(budget, key);
      if (!other || !equal(budget, value, *other)) return false;
    }
    return true;
  }
  return (a.is_undefined() && b.is_undefined()) || a.same_as(b);
}

int compare(Budget& budget, const Value& a, const Value& b) {
  Budget::Level level(budget);
  budget.step();
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.whole() && b.whole()) return order(*a.whole(), *b.whole());
  if (a.is_number() && b.is_number()) return order(*a.number(), *b.number());
  if (a.text() && b.text()) {
    budget.step(a.text()->size() / 256);
    return order(a.text()->bytes(), b.text()->bytes());  // UTF-8 sorts as its characters do
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const List &x = *a.items(), &y = *b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(budget, x[i], y[i])) return compare(budget, x[i], y[i]);
    return order(x.size(), y.size());
  }
  if (a.is_undefined() || b.is_undefined()) wrong("{}", a.is_undefined() ? a.reason() : b.reason());
  wrong("'{}' and '{}' have no order", a.type_name(), b.type_name());
}

std::string repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, std::end(buffer), number, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, std::end(buffer), number, std::chars_format::fixed).ptr;
  std::string plain(buffer, fixed);
  return plain.find('.') == plain.npos ? plain + ".0" : plain;
}

Text to_text(Budget& budget, const Value& value) {
  if (value.text()) return *value.text();
  if (value.is_undefined()) return {};
  if (value.is_none()) return {"None", true};
  if (value.boolean()) return {*value.boolean() ? "True" : "False", true};
  if (value.integer()) return {fmt::to_string(*value.integer()), true};
  if (value.real()) return {repr(*value.real()), true};
  if (value.huge()) return {*value.huge()->digits, true};
  if (value.object()) return {value.object()->describe(), false};
  if (value.generator()) return {"<generator object>", true};
  return repr(budget, value);
}

Text repr(Budget& budget, const Value& value) {
  std::string out;
  append_repr(budget, value, out);
  return {out, false};
}

}  // namespace weft::jinja
