#pragma once

#include <functional>
#include <string>
#include <vector>

namespace weft {

/// A step of the way from a token's spelling to its text; `first`: it begins the text.
using DecodeStep = std::function<void(std::string& piece, bool first)>;

/// Decoders: token by token, so that a text can be shown while it grows.
namespace decoders {

DecodeStep byte_level();
DecodeStep byte_fallback();  ///< "<0x0A>" is a byte
DecodeStep replace(std::string from, std::string to);
DecodeStep metaspace(std::string replacement, bool drop_first);
DecodeStep wordpiece(std::string prefix, bool cleanup);
/// Takes up to `start` times `content` away from the begin of the first piece, or of every piece.
DecodeStep strip_start(std::string content, size_t start, bool only_first);
DecodeStep rwkv();

}  // namespace decoders
}  // namespace weft
