#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/text.h"

namespace weft {

struct Candidate {
  TokenId id;
  float logit;
  float p = 0;
};

/// The tokens that may still become the next one. They stay in the order of their ids whatever is taken away:
/// a number drawn then means the same token even where two devices disagree about nearly equal logits.
class Candidates {
 public:
  /// The k best of the tokens whose logit is above -infinity; k <= 0: all.
  void start(std::span<const float> logits, int64_t k);

  // Each keeps at least min_keep, and one.
  void typical(float p, size_t min_keep);
  void top_p(float p, size_t min_keep);
  void min_p(float p, size_t min_keep);
  /// Of those with a probability of at least `threshold` only the last one.
  void drop_top(float threshold, size_t min_keep);
  /// Those with -log2 p of at most `bits`.
  void limit_surprise(float bits);
  /// Divides logits; 0 or less keeps the best one only.
  void temperature(float t);
  template <typename Keep>
  void keep_if(const Keep& keep) {
    std::erase_if(list_, [&](const Candidate& c) { return !keep(c); });
  }

  /// Sets the probabilities.
  void softmax();
  /// The candidate in whose part of all probabilities `share` (0 <= share < 1) lies. After softmax.
  const Candidate& at_share(double share) const;

  std::span<const Candidate> list() const { return list_; }
  bool empty() const { return list_.empty(); }

 private:
  struct Ranked {
    double key;
    TokenId id;
    float p;
    bool operator<(const Ranked& other) const { return key != other.key ? key < other.key : id < other.id; }
  };
  /// Keeps those with the smallest keys: as few as are `enough(sum of their probabilities, their count)`.
  template <typename Key, typename Enough>
  void keep_first(const Key& key, const Enough& enough);

  std::vector<Candidate> list_;
  std::vector<Ranked> order_;  // working memory
};

}  // namespace weft
