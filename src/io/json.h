#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "io/text_file.h"

namespace weft {

/// Fails (ErrorKind::io) where lists and objects are nested deeper than 100 levels: who copies a value calls
/// itself for each. `where` begins the message: "[model] FILE".
void check_json_depth(std::string_view text, const std::string& where);

/// What a JSON text from outside says; discarded when it is none.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where) {
  check_json_depth(text, where);
  return Json::parse(text, nullptr, false);
}

/// The same of a file; `subject` stands before its name: "[model]".
template <typename Json = nlohmann::json>
Json read_json(const std::filesystem::path& file, std::string_view subject) {
  return parse_json<Json>(read_text_file(file), std::string(subject) + " " + file.string());
}

}  // namespace weft
