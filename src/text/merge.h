#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "weft/text.h"

namespace weft {

/// Merges neighbours, the cheapest pair first and of equal ones the left one, until no pair is left that may
/// merge. A linked list and a heap: n log n for a piece of n symbols.
class Merger {
 public:
  struct Symbol {
    size_t begin = 0, size = 0;  ///< bytes of the piece; size 0: merged into its left neighbour
    TokenId id = kNoToken;
    int32_t previous = -1, next = -1;
  };
  struct Merge {
    double cost;
    TokenId id;
  };

  void clear() { symbols_.clear(); }
  void add(size_t begin, size_t size, TokenId id) {
    const auto index = static_cast<int32_t>(symbols_.size());
    if (index > 0) symbols_.back().next = index;
    symbols_.push_back({begin, size, id, index - 1, -1});
  }

  /// `merge_of(left, right)` is what two symbols become: std::optional<Merge>.
  template <typename MergeOf>
  void run(const MergeOf& merge_of) {
    const auto offer = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const Symbol &a = symbols_[static_cast<size_t>(left)], &b = symbols_[static_cast<size_t>(right)];
      if (const std::optional<Merge> merge = merge_of(a, b))
        queue_.push({*merge, left, right, a.size + b.size});
    };
    for (int32_t i = 1; i < static_cast<int32_t>(symbols_.size()); ++i) offer(i - 1, i);
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Symbol &left = symbols_[static_cast<size_t>(best.left)],
             &right = symbols_[static_cast<size_t>(best.right)];
      if (left.size == 0 || right.size == 0 || left.size + right.size != best.size)
        continue;  // merged since then
      left.size = best.size;
      left.id = best.merge.id;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = best.left;
      offer(left.previous, best.left);
      offer(best.left, left.next);
    }
  }

  /// In the order of the text; skip those of size 0.
  const std::vector<Symbol>& symbols() const { return symbols_; }

 private:
  struct Candidate {
    Merge merge;
    int32_t left, right;
    size_t size;
    bool operator<(const Candidate& other) const {
      return merge.cost != other.merge.cost ? merge.cost > other.merge.cost : left > other.left;
    }
  };
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace weft
