#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The environment variables weft reads: one table, one parser. docs/environment.md is checked against the
/// table.
namespace weft::env {

struct Variable {
  std::string_view name;
  std::string_view values;  ///< what may stand there, for people
  std::string_view meaning;
  std::vector<std::string_view> choices;  ///< closed set of values; empty = free text
  bool list = false;                      ///< several choices, separated by commas
  bool counted = false;                   ///< a choice may be followed by `:N`, N >= 1
};

std::span<const Variable> table();

/// Value of a variable of the table; nullopt when unset or empty. Throws ErrorKind::invalid with the right
/// values when the variable has a closed set of choices and holds something else.
std::optional<std::string> get(std::string_view name);

/// Same, split at commas.
std::vector<std::string> get_list(std::string_view name);

/// Number of a numeric variable; throws when it is not a positive whole number.
std::optional<int> get_count(std::string_view name);

/// More threads than this are a mistake: each has a stack, and a pool of thousands takes minutes to begin.
int most_threads();

/// WEFT_THREADS, or one per core. Throws when it is not a number from 1 to most_threads().
int thread_count();

/// Throws on the first variable with a wrong value, or on a WEFT_* name that is not in the table.
void check_all();

}  // namespace weft::env
