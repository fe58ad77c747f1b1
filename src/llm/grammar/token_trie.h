#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/text.h"

namespace weft {

/// The tokens of a vocabulary by their bytes, for walks through all of it: a node comes directly before those
/// below it, so a walk is one pass that jumps over what it does not want. Made once for a tokenizer.
class TokenTrie {
 public:
  explicit TokenTrie(const Tokenizer& tokenizer);

  struct Node {
    uint32_t end;    ///< the node behind all that are below this one
    uint16_t depth;  ///< bytes from the begin to here
    uint8_t byte;    ///< the last of them
    TokenId token;   ///< the first one with these bytes, or kNoToken
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  size_t max_depth() const { return max_depth_; }

  /// Another token with the same bytes, or kNoToken.
  TokenId twin(TokenId id) const { return twins_[static_cast<size_t>(id)]; }
  /// Empty for tokens that are no text.
  const std::string& bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }
  const std::vector<TokenId>& ends() const { return ends_; }  ///< tokens that end a generation
  bool is_end(TokenId id) const { return is_end_[static_cast<size_t>(id)]; }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> twins_;
  std::vector<std::string> bytes_;
  std::vector<TokenId> ends_;
  std::vector<bool> is_end_;
  size_t max_depth_ = 0;
};

}  // namespace weft
