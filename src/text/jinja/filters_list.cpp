#include <algorithm>

#include "text/jinja/library.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_ops.h"

namespace weft::jinja {
namespace {

using I = Interpreter;
using V = const Value;

bool given(V& value) {
  return !value.is_undefined() && !value.is_none();
}

/// What a filter with `attribute` and `case_sensitive` looks at in an item.
Value key_of(I& interpreter, V& item, V& attribute, bool case_sensitive, const Value* otherwise = nullptr) {
  Value key = given(attribute) ? interpreter.attribute_path(item, attribute, otherwise) : item;
  return key.text() && !case_sensitive ? Value(lower(*key.text())) : key;
}

struct Keyed {
  Value item;
  List keys;
};

/// Stable, as Python's; several keys are compared one after the other.
void sort_items(I& interpreter, std::vector<Keyed>& items, bool reverse) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    const Keyed &x = reverse ? b : a, &y = reverse ? a : b;
    for (size_t i = 0; i < x.keys.size(); ++i)
      if (!equal(interpreter.budget(), x.keys[i], y.keys[i]))
        return compare(interpreter.budget(), x.keys[i], y.keys[i]) < 0;
    return false;
  };
  // Not std::stable_sort: an order that contradicts itself (NaN) must not lead it out of bounds.
  if (items.size() < 2) return;
  std::vector<Keyed> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size()),
                   end = std::min(begin + 2 * width, items.size());
      for (size_t left = begin, right = middle, out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && before(items[right], items[left]));
        other[out] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(other);
  }
}

List taken(std::vector<Keyed>& items) {
  List list;
  for (Keyed& keyed : items) list.push_back(std::move(keyed.item));
  return list;
}

Value sort(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  List attributes = {args[2]};
  if (args[2].text()) attributes = split(*args[2].text(), &static_cast<const Text&>(Text(",", true)), -1);
  std::vector<Keyed> items;
  for (Value& item : interpreter.iterate(value)) {
    List keys;
    for (V& attribute : attributes) keys.push_back(key_of(interpreter, item, attribute, args[1].truthy()));
    items.push_back({std::move(item), std::move(keys)});
  }
  sort_items(interpreter, items, args[0].truthy());
  return taken(items);
}

Value dictsort(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  if (!value.dict()) wrong("dictsort: a mapping is needed, not '{}'", value.type_name());
  const std::string by = args[1].text() ? args[1].text()->bytes() : "key";
  if (by != "key" && by != "value") wrong("dictsort: by is neither \"key\" nor \"value\"");
  std::vector<Keyed> items;
  for (const auto& [key, held] : value.dict()->pairs())
    items.push_back({Value(List{key, held}, Sequence::Shape::tuple),
                     {key_of(interpreter, by == "key" ? key : held, Value(), args[0].truthy())}});
  sort_items(interpreter, items, args[2].truthy());
  return taken(items);
}

Value groupby(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
  const Value* otherwise = given(args[1]) ? &args[1] : nullptr;
  std::vector<Keyed> items;
  for (Value& item : interpreter.iterate(value)) {
    Value key = key_of(interpreter, item, args[0], args[2].truthy(), otherwise);
    items.push_back({std::move(item), {std::move(key)}});
  }
  sort_items(interpreter, items, false);
  List groups;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    List members;
    for (end = begin;
         end < items.size() && equal(interpreter.budget(), items[end].keys[0], items[begin].keys[0]); ++end)
      members.push_back(items[end].item);
    Value name = key_of(interpreter, members.front(), args[0], true, otherwise);
    groups.push_back({List{std::move(name), std::move(members)}, Sequence::Shape::group});
  }
  return groups;
}

Value unique(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("unique", std::move(arguments), {"case_sensitive", "attribute"});
  Dict seen;
  List kept;
  for (Value& item : interpreter.iterate(value)) {
    const Value key = key_of(interpreter, item, args[1], args[0].truthy());
    if (seen.find(interpreter.budget(), key)) continue;
    seen.set(interpreter.budget(), key, true);
    kept.push_back(std::move(item));
  }
  return Value::generator(std::move(kept));
}

template <bool Largest>
Value extreme(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("min and max", std::move(arguments), {"case_sensitive", "attribute"});
  List items = interpreter.iterate(value);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = key_of(interpreter, items[0], args[1], args[0].truthy());
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(interpreter, items[i], args[1], args[0].truthy());
    const int order = compare(interpreter.budget(), key, best_key);
    if (Largest ? order <= 0 : order >= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("sum", std::move(arguments), {"attribute", "start"});
  Value total = args[1].is_undefined() ? Value(int64_t{0}) : args[1];
  if (total.text()) wrong("sum: strings cannot be summed");
  for (V& item : interpreter.iterate(value))
    total = arithmetic(interpreter, "+", total,
                       given(args[0]) ? interpreter.attribute_path(item, args[0]) : item);
  return total;
}

Value join_filter(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("join", std::move(arguments), {"d", "attribute"});
  Budget& budget = interpreter.budget();
  std::vector<Text> parts;
  for (V& item : interpreter.iterate(value))
    parts.push_back(to_text(budget, given(args[1]) ? interpreter.attribute_path(item, args[1]) : item));
  return join(budget, to_text(budget, args[0]), parts);
}

/// What is left after the first argument.
Arguments without_first(Arguments arguments, size_t count) {
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<ptrdiff_t>(count));
  return arguments;
}

std::string name_argument(std::string_view filter, V& value) {
  if (!value.text()) wrong("{}: a name is needed, not '{}'", filter, value.type_name());
  return value.text()->bytes();
}

Value map(I& interpreter, V& value, Arguments arguments) {
  if (!value.truthy()) return Value::generator({});  // none too
  List results;
  if (arguments.positional.empty()) {
    const List args = bind("map", std::move(arguments), {"attribute", "default"}, 1);
    const Value* otherwise = given(args[1]) ? &args[1] : nullptr;
    for (V& item : interpreter.iterate(value))
      results.push_back(interpreter.attribute_path(item, args[0], otherwise));
  } else {
    const std::string filter = name_argument("map", arguments.positional[0]);
    const Arguments rest = without_first(std::move(arguments), 1);
    for (V& item : interpreter.iterate(value)) results.push_back(interpreter.filter(filter, item, rest));
  }
  return Value::generator(std::move(results));
}

/// select, reject, selectattr, rejectattr: the items for which a test gives `Wanted`.
template <bool Wanted, bool OfAttribute>
Value select(I& interpreter, V& value, Arguments arguments) {
  if (!value.truthy()) return Value::generator({});  // none too
  Value attribute;
  if (OfAttribute) {
    if (arguments.positional.empty()) wrong("selectattr needs the name of an attribute");
    attribute = arguments.positional[0];
    arguments = without_first(std::move(arguments), 1);
  }
  std::string test;
  if (!arguments.positional.empty()) {
    test = name_argument("select", arguments.positional[0]);
    arguments = without_first(std::move(arguments), 1);
  }
  List kept;
  for (Value& item : interpreter.iterate(value)) {
    const Value looked_at = OfAttribute ? interpreter.attribute_path(item, attribute) : item;
    const bool holds = test.empty() ? looked_at.truthy() : interpreter.test(test, looked_at, arguments);
    if (holds == Wanted) kept.push_back(std::move(item));
  }
  return Value::generator(std::move(kept));
}

Value first(I& interpreter, V& value, Arguments arguments) {
  bind("first", std::move(arguments), {});
  if (Generator* generator = value.generator(); generator && generator->next < generator->items.size())
    return generator->items[generator->next++];
  const List items = interpreter.iterate(value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(I& interpreter, V& value, Arguments arguments) {
  bind("last", std::move(arguments), {});
  if (value.generator()) wrong("'generator' object is not reversible");
  const List items = interpreter.iterate(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(I& interpreter, V& value, Arguments arguments) {
  bind("reverse", std::move(arguments), {});
  if (value.text()) return slice(interpreter, value, None{}, None{}, int64_t{-1});
  List items = interpreter.iterate(value);
  std::ranges::reverse(items);
  return value.generator() ? Value(std::move(items)) : Value::generator(std::move(items));
}

Value batch(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  if (!args[0].whole()) wrong("batch: a whole number is needed, not '{}'", args[0].type_name());
  const int64_t size = *args[0].whole();
  List batches, current;
  for (Value& item : interpreter.iterate(value)) {
    if (static_cast<int64_t>(current.size()) == size) batches.emplace_back(std::exchange(current, List()));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (given(args[1]) && static_cast<int64_t>(current.size()) < size) {
      interpreter.budget().produce(static_cast<size_t>(size), sizeof(Value));
      current.resize(static_cast<size_t>(size), args[1]);
    }
    batches.emplace_back(std::move(current));
  }
  return Value::generator(std::move(batches));
}

Value slice_filter(I& interpreter, V& value, Arguments arguments) {
  const List args = bind("slice", std::move(arguments), {"slices", "fill_with"}, 1);
  if (!args[0].whole() || *args[0].whole() <= 0) wrong("slice: the number of slices must be above 0");
  const auto count = static_cast<size_t>(*args[0].whole());
  interpreter.budget().produce(count, 4 * sizeof(Value));
  const List items = interpreter.iterate(value);
  const size_t each = items.size() / count, longer = items.size() % count;
  List slices;
  for (size_t i = 0, begin = 0; i < count; ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    List part(items.begin() + static_cast<ptrdiff_t>(begin),
              items.begin() + static_cast<ptrdiff_t>(begin + size));
    if (given(args[1]) && i >= longer) part.push_back(args[1]);
    slices.emplace_back(std::move(part));
    begin += size;
  }
  return Value::generator(std::move(slices));
}

Value list(I& interpreter, V& value, Arguments arguments) {
  bind("list", std::move(arguments), {});
  return interpreter.iterate(value);
}

Value items(I& interpreter, V& value, Arguments arguments) {
  bind("items", std::move(arguments), {});
  if (value.is_undefined()) return Value::generator({});
  if (!value.dict()) wrong("Can only get item pairs from a mapping.");
  return Value::generator(interpreter.iterate(interpreter.call_method(value, "items", {})));
}

Value length(I&, V& value, Arguments arguments) {
  bind("length", std::move(arguments), {});
  size_t count = 0;
  if (value.text())
    count = character_count(value.text()->bytes());
  else if (value.items())
    count = value.items()->size();
  else if (value.dict())
    count = value.dict()->size();
  else if (!value.is_undefined())
    wrong("object of type '{}' has no len()", value.type_name());
  return static_cast<int64_t>(count);
}

constexpr Row<FilterFunction> kFilters[] = {
    {"sort", sort},
    {"dictsort", dictsort},
    {"groupby", groupby},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"join", join_filter},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"batch", batch},
    {"slice", slice_filter},
    {"list", list},
    {"items", items},
    {"length", length},
    {"count", length},
};

}  // namespace

std::span<const Row<FilterFunction>> list_filters() {
  return kFilters;
}

}  // namespace weft::jinja
