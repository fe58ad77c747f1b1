#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace weft {

using Schema = nlohmann::ordered_json;

/// One schema for what is valid for both. Throws ErrorKind::unsupported, `[json schema] WHERE: ...`, where
/// there is no such schema.
Schema merge_schemas(const Schema& a, const Schema& b, std::string_view where);

/// Whether no value is valid for both, as far as can be told from types, constants and properties. References
/// are resolved by the caller.
bool are_disjoint(const Schema& a, const Schema& b);

}  // namespace weft
