#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The words of JSON Schema, and the rules that its grammars are made of.
namespace weft::schema {

struct Rule {
  std::string_view name, body;
};
std::span<const Rule> basic_rules();

/// A regular expression for strings of a format; nullopt: it is not known. "": any string.
std::optional<std::string> pattern_of_format(std::string_view name);

bool is_keyword(std::string_view name);     ///< that weft keeps to
bool is_annotation(std::string_view name);  ///< that says nothing about validity

/// Which type a keyword is about; "" for others.
std::string_view type_of_keyword(std::string_view keyword);

}  // namespace weft::schema
