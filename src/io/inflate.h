#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace weft {

/// Gives the bytes of a deflate stream (RFC 1951) to `sink`, in pieces. Throws ErrorKind::io where the stream
/// is damaged or cut off.
void inflate(std::span<const std::byte> stream, const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace weft
