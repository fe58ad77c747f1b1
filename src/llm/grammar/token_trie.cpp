#include "llm/grammar/token_trie.h"

#include <algorithm>
#include <limits>

namespace weft {

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : twins_(tokenizer.size(), kNoToken), bytes_(tokenizer.size()), is_end_(tokenizer.size()) {
  constexpr size_t kMaxBytes = std::numeric_limits<uint16_t>::max();
  std::vector<TokenId> sorted;
  for (TokenId id = 0; static_cast<size_t>(id) < tokenizer.size(); ++id) {
    if (tokenizer.ends_generation(id)) {
      is_end_[static_cast<size_t>(id)] = true;
      ends_.push_back(id);
      continue;
    }
    std::string& bytes = bytes_[static_cast<size_t>(id)];
    bytes = tokenizer.bytes_of(id);
    if (bytes.size() > kMaxBytes) bytes.clear();
    if (!bytes.empty()) sorted.push_back(id);
  }
  std::ranges::stable_sort(sorted, {}, [&](TokenId id) -> const std::string& { return bytes(id); });

  std::vector<uint32_t> path;  // the nodes from the begin to the last one
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string& text = bytes(sorted[i]);
    size_t common = 0;
    if (i > 0) {
      const std::string& before = bytes(sorted[i - 1]);
      if (text == before) {
        twins_[static_cast<size_t>(sorted[i - 1])] = sorted[i];
        continue;
      }
      common = static_cast<size_t>(std::ranges::mismatch(text, before).in1 - text.begin());
    }
    close(common);
    for (size_t depth = common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(text[depth]), kNoToken});
    }
    nodes_.back().token = sorted[i];
    max_depth_ = std::max(max_depth_, text.size());
  }
  close(0);
}

}  // namespace weft
