#include "text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace weft::jinja {
namespace {

constexpr size_t kMaxDepth = 200;  // of a JSON text

/// Builds values directly: nlohmann's ordered objects take time that grows with the square of their size.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Budget& budget) : budget_(budget) {}

  Value take() { return std::move(result_); }

  bool null() override { return put(None{}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return put_huge(fmt::to_string(value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& spelling) override {
    if (spelling.find_first_of(".eE") == spelling.npos) return put_huge(spelling);
    return put(value);
  }
  bool string(string_t& value) override { return put(Text(value, false)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& value) override {
    open_.back().key = Text(value, false);
    return true;
  }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    open_.pop_back();
    return put(std::move(dict));
  }
  bool end_array() override {
    List list = std::move(open_.back().list);
    open_.pop_back();
    return put(std::move(list));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    wrong("the input is not JSON (byte {})", position);
  }

 private:
  struct Level {
    bool object;
    List list;
    Dict dict;
    Value key;
  };

  bool open(bool object) {
    if (open_.size() >= kMaxDepth) wrong("the input is nested too deeply");
    open_.push_back({.object = object});
    return true;
  }

  bool put_huge(const std::string& digits) {
    return put(Huge{std::make_shared<const std::string>(digits), std::stod(digits)});
  }

  bool put(Value value) {
    budget_.step();
    if (open_.empty())
      result_ = std::move(value);
    else if (open_.back().object)
      open_.back().dict.set(budget_, open_.back().key, std::move(value));
    else
      open_.back().list.push_back(std::move(value));
    return true;
  }

  Budget& budget_;
  Value result_;
  std::vector<Level> open_;
};

class Writer {
 public:
  Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    Budget::Level level(budget_);
    budget_.step();
    const size_t before = out_.size();
    if (value.text())
      string(value.text()->bytes());
    else if (value.is_list() || value.is_tuple())
      list(*value.items());
    else if (value.dict())
      object(*value.dict());
    else
      out_ += scalar(value);
    if (!value.items() && !value.dict()) budget_.produce(out_.size() - before);
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.boolean()) return *value.boolean() ? "true" : "false";
    if (value.integer()) return fmt::to_string(*value.integer());
    if (value.huge()) return *value.huge()->digits;
    if (!value.real()) wrong("Object of type {} is not JSON serializable", value.type_name());
    const double number = *value.real();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return repr(number);
  }

  void string(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t code = utf8::next(text, at);
      constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
      const size_t place = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
      if (place != kEscaped.npos)
        (out_ += '\\') += kNames[place];
      else if (code < 0x20 || (style_.ascii && code >= 0x7F))
        unicode_escape(code);
      else
        out_ += text.substr(begin, at - begin);
    }
    out_ += '"';
  }

  void unicode_escape(char32_t code) {
    if (code >= 0x10000) {
      unicode_escape(0xD800 + ((code - 0x10000) >> 10));
      code = 0xDC00 + ((code - 0x10000) & 0x3FF);
    }
    out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
  }

  void line() {
    if (!style_.lines) return;
    budget_.produce(depth_, style_.indent.size());
    out_ += '\n';
    for (size_t i = 0; i < depth_; ++i) out_ += style_.indent;
  }

  /// `write_item(i)` writes the item; brackets, separators and lines are done here.
  template <typename WriteItem>
  void items(char open, char close, size_t count, const WriteItem& write_item) {
    out_ += open;
    ++depth_;
    for (size_t i = 0; i < count; ++i) {
      if (i != 0) {
        budget_.produce(style_.item_separator.size());
        out_ += style_.item_separator;
      }
      line();
      write_item(i);
    }
    --depth_;
    if (count != 0) line();
    out_ += close;
  }

  void list(const List& values) {
    items('[', ']', values.size(), [&](size_t i) { write(values[i]); });
  }

  void object(const Dict& dict) {
    std::vector<const Dict::Pair*> pairs;
    for (const Dict::Pair& pair : dict.pairs()) pairs.push_back(&pair);
    if (style_.sort_keys)
      std::ranges::stable_sort(pairs, [&](const Dict::Pair* a, const Dict::Pair* b) {
        return compare(budget_, a->first, b->first) < 0;
      });
    items('{', '}', pairs.size(), [&](size_t i) {
      const Value& key = pairs[i]->first;
      string(key.text() ? key.text()->bytes() : scalar(key));
      out_ += style_.key_separator;
      budget_.produce(style_.key_separator.size() + 2 + (key.text() ? key.text()->size() : 0));
      write(pairs[i]->second);
    });
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
  size_t depth_ = 0;
};

}  // namespace

Value parse_json(Budget& budget, std::string_view json) {
  Builder builder(budget);
  nlohmann::json::sax_parse(json, &builder);
  return builder.take();
}

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  Writer writer(budget, style);
  writer.write(value);
  return writer.take();
}

}  // namespace weft::jinja
