#include "text/jinja/library.h"

#include <algorithm>
#include <unordered_map>

namespace weft::jinja {
namespace {

template <typename Function>
using Table = std::unordered_map<std::string_view, Function>;

template <typename Function>
Table<Function> table_of(std::initializer_list<std::span<const Row<Function>>> parts) {
  Table<Function> table;
  for (const auto& part : parts)
    for (const Row<Function>& row : part) table.emplace(row.name, row.function);
  return table;
}

template <typename Function>
Function find(const Table<Function>& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  static const auto table = table_of<FilterFunction>({text_filters(), list_filters(), value_filters()});
  return find(table, name);
}

TestFunction find_test(std::string_view name) {
  static const auto table = table_of<TestFunction>({tests()});
  return find(table, name);
}

MethodFunction find_method(const Value& object, std::string_view name) {
  static const auto of_text = table_of<MethodFunction>({text_methods()});
  static const auto of_list = table_of<MethodFunction>({list_methods()});
  static const auto of_dict = table_of<MethodFunction>({dict_methods()});
  if (object.text()) return find(of_text, name);
  if (object.is_list() || (object.is_tuple() && name != "copy")) return find(of_list, name);
  if (object.dict()) return find(of_dict, name);
  return nullptr;
}

bool is_changing_method(const Value& object, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.dict()) return std::ranges::find(kDict, name) != std::end(kDict);
  return object.is_list() && std::ranges::find(kList, name) != std::end(kList);
}

}  // namespace weft::jinja
