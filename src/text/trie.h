#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/text.h"

namespace weft {

/// Token texts by their bytes. A state is what a walk has read so far.
class Trie {
 public:
  using State = uint32_t;
  static constexpr State kRoot = 0, kDead = static_cast<State>(-1);

  /// Of equal texts the last one counts; empty ones are left out. ErrorKind::unsupported above 1024 bytes.
  explicit Trie(std::vector<std::pair<std::string_view, TokenId>> entries = {});

  State step(State state, char byte) const;
  State walk(std::string_view text) const;
  /// The token that ends here, or kNoToken.
  TokenId token(State state) const { return nodes_[state].token; }

  struct Found {
    size_t length = 0;  ///< 0: nothing found
    TokenId token = kNoToken;
  };
  /// The longest token at the begin of `text`, the walk coming from `from`.
  Found longest(std::string_view text, State from = kRoot) const;

 private:
  struct Node {
    uint32_t first = 0;  // its children lie together, in the order of their bytes
    uint16_t children = 0;
    char byte = 0;  // by which one comes here
    TokenId token = kNoToken;
  };
  std::vector<Node> nodes_;
};

}  // namespace weft
