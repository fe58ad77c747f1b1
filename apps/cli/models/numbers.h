#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

/// Which numbers a flag takes, with errors that say so.
namespace weft::cli {

/// The whole text as a number, where it is one that Number can be.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename T>
std::string no_number(std::string_view text) {
  return fmt::format("'{}' is not a {}number", text, std::is_integral_v<T> ? "whole " : "");
}

/// Numbers of a command have to be numbers: CLI11 reads nothing as 0, and what is too large as the largest.
inline void check_numbers(CLI::App& command) {
  const auto check = []<typename T>(const std::string& text) {
    return number_in<T>(text) ? std::string() : no_number<T>(text);
  };
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT"))
      option->check([=](const std::string& t) { return check.template operator()<int64_t>(t); });
    if (type.starts_with("FLOAT"))
      option->check([=](const std::string& t) { return check.template operator()<double>(t); });
  }
}

/// `rule`: "1 or more".
template <typename T, typename Right>
CLI::Validator number_that(std::string rule, Right right) {
  return {[rule = std::move(rule), right](const std::string& text) {
            const std::optional<T> value = number_in<T>(text);
            if (!value) return no_number<T>(text);
            return right(*value) ? std::string() : fmt::format("has to be {}, not {}", rule, text);
          },
          ""};
}

template <typename T>
CLI::Validator at_least(T least) {
  return number_that<T>(fmt::format("{} or more", least), [least](T value) { return value >= least; });
}

template <typename T>
CLI::Validator between(T least, T most) {
  return number_that<T>(fmt::format("{} to {}", least, most),
                        [least, most](T value) { return value >= least && value <= most; });
}

}  // namespace weft::cli
