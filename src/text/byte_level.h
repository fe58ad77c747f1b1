#pragma once

#include <string>
#include <string_view>

namespace weft {

/// GPT-2's alphabet: every byte has a printable character, a space is "Ġ".
std::string to_byte_level(std::string_view bytes);

/// The bytes that `text` stands for; `text` itself when it has a character that is not of the alphabet.
std::string from_byte_level(std::string_view text);

}  // namespace weft
