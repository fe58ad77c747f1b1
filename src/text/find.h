#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

/// As find and rfind of std::string_view, whose time grows with the product of both lengths; here it grows
/// with their sum, since both texts may come from somebody who knows that.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view wanted);

}  // namespace weft
