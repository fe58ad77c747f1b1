#include "text/trie.h"

#include <algorithm>

#include "base/error.h"
#include "io/safetensors.h"

namespace weft {

Trie::Trie(std::vector<std::pair<std::string_view, TokenId>> entries) : nodes_(1) {
  constexpr size_t kMost = 1024;  // a search of a text may follow one at each place of it
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  for (const auto& [text, token] : entries)
    if (text.size() > kMost)
      fail(ErrorKind::unsupported, "[tokenizer] token '{}' has {} bytes; at most {}", one_line(text),
           text.size(), kMost);
  std::ranges::stable_sort(entries, {}, [](const auto& entry) { return entry.first; });
  // Breadth first, so that children come to lie together: each node knows the entries that pass through it.
  struct Pending {
    State node;
    size_t begin, end, depth;
  };
  std::vector<Pending> pending = {{kRoot, 0, entries.size(), 0}};
  for (size_t next = 0; next < pending.size(); ++next) {
    auto [node, begin, end, depth] = pending[next];
    for (; begin < end && entries[begin].first.size() == depth; ++begin)
      nodes_[node].token = entries[begin].second;
    nodes_[node].first = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      size_t stop = begin;
      while (stop < end && entries[stop].first[depth] == byte) ++stop;
      pending.push_back({static_cast<State>(nodes_.size()), begin, stop, depth + 1});
      nodes_.push_back({.byte = byte});
      ++nodes_[node].children;
      begin = stop;
    }
  }
}

Trie::State Trie::step(State state, char byte) const {
  if (state == kDead) return kDead;
  const auto children = std::span(nodes_).subspan(nodes_[state].first, nodes_[state].children);
  const auto order = [](char c) { return static_cast<unsigned char>(c); };
  const auto found =
      std::ranges::lower_bound(children, order(byte), {}, [&](const Node& node) { return order(node.byte); });
  return found != children.end() && found->byte == byte ? static_cast<State>(&*found - nodes_.data()) : kDead;
}

Trie::State Trie::walk(std::string_view text) const {
  State state = kRoot;
  for (char byte : text) state = step(state, byte);
  return state;
}

Trie::Found Trie::longest(std::string_view text, State from) const {
  Found found;
  State state = from;
  for (size_t i = 0; i < text.size(); ++i) {
    state = step(state, text[i]);
    if (state == kDead) break;
    if (token(state) != kNoToken) found = {i + 1, token(state)};
  }
  return found;
}

}  // namespace weft
