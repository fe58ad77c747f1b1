#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft::test {

/// Whether a value is valid for a JSON Schema (`root` is the document of its references): slow and obvious,
/// for the keywords that weft has. "" or the reason why not.
std::string why_invalid(const nlohmann::ordered_json& schema, const nlohmann::json& value,
                        const nlohmann::ordered_json& root);

}  // namespace weft::test
