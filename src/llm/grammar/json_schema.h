#pragma once

#include <string>
#include <string_view>

namespace weft {

/// The grammar (GBNF) of the JSON texts that a JSON Schema allows. Properties come in the schema's order;
/// properties that it does not name come only where it allows them in words.
///
/// Not every text that is valid follows the grammar, but every text that follows the grammar is valid: a
/// keyword that cannot be kept to is an error that names it. Throws ErrorKind::invalid for what is no schema
/// and ErrorKind::unsupported, `[json schema] /properties/a: 'not' is not supported`.
std::string json_schema_to_gbnf(std::string_view schema);

/// The grammar of any JSON object: OpenAI's JSON mode.
std::string json_object_gbnf();

}  // namespace weft
