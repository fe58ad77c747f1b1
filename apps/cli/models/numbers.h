#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>

/// Which numbers a flag takes, with errors that say so.
namespace weft::cli {

/// `rule`: "1 or more".
template <typename T, typename Right>
CLI::Validator number_that(std::string rule, Right right) {
  return {[rule = std::move(rule), right](const std::string& text) {
            T value{};
            if (!CLI::detail::lexical_cast(text, value))
              return fmt::format("'{}' is not a {}number", text, std::is_integral_v<T> ? "whole " : "");
            return right(value) ? std::string() : fmt::format("has to be {}, not {}", rule, text);
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
