#include "llm/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

double best_first(const Candidate& c) {
  return -static_cast<double>(c.logit);
}

}  // namespace

void Candidates::start(std::span<const float> logits, int64_t k) {
  list_.clear();
  if (k <= 0 || static_cast<size_t>(k) >= logits.size()) {
    for (size_t i = 0; i < logits.size(); ++i)
      if (logits[i] > kNever) list_.push_back({static_cast<TokenId>(i), logits[i]});
    return;
  }
  // One pass that compares with the worst of the k best so far; they are sorted out whenever the list is
  // full.
  const auto kept = static_cast<size_t>(k);
  const size_t full = std::max<size_t>(2 * kept, 256);
  float worst = kNever;
  const auto sort_out = [&] {
    if (list_.size() <= kept) return;
    std::nth_element(list_.begin(), list_.begin() + (k - 1), list_.end(), better);
    list_.resize(kept);
    worst = list_.back().logit;
  };
  constexpr size_t kBlock = 64;  // logits that are looked at together: hardly any block has one of the best
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    int better_ones = 0;
    for (const float logit : block) better_ones += logit > worst;
    if (better_ones == 0) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] <= worst) continue;
      list_.push_back({static_cast<TokenId>(begin + i), block[i]});
      if (list_.size() == full) sort_out();
    }
  }
  sort_out();
  std::ranges::sort(list_, {}, &Candidate::id);
}

template <typename Key, typename Enough>
void Candidates::keep_first(const Key& key, const Enough& enough) {
  order_.clear();
  for (const Candidate& c : list_) order_.push_back({key(c), c.id, c.p});
  // The place where it is enough is between begin and end. A quarter at a time is put before the rest and
  // summed; only the last few candidates are sorted.
  auto begin = order_.begin(), end = order_.end();
  double sum = 0;
  while (end - begin > 64) {
    const auto middle = begin + (end - begin) / 4;
    std::nth_element(begin, middle, end);
    const double more =
        std::accumulate(begin, middle, 0.0, [](double x, const Ranked& r) { return x + r.p; });
    if (enough(sum + more, static_cast<size_t>(middle - order_.begin()))) {
      end = middle;
    } else {
      begin = middle;
      sum += more;
    }
  }
  std::sort(begin, end);
  while (begin != end) {
    sum += begin->p;
    ++begin;
    if (enough(sum, static_cast<size_t>(begin - order_.begin()))) break;
  }
  if (begin == order_.end()) return;
  const Ranked last = *(begin - 1);
  keep_if([&](const Candidate& c) { return !(last < Ranked{key(c), c.id, c.p}); });
}

void Candidates::typical(float p, size_t min_keep) {
  if (p >= 1 || empty()) return;
  softmax();
  double entropy = 0;
  for (const Candidate& c : list_)
    if (c.p > 0) entropy -= c.p * std::log(static_cast<double>(c.p));
  const auto distance = [&](const Candidate& c) {
    return std::abs(std::log(static_cast<double>(c.p)) + entropy);
  };
  keep_first(distance, [&](double sum, size_t count) { return sum > p && count >= min_keep; });
}

void Candidates::top_p(float p, size_t min_keep) {
  if (p >= 1 || empty()) return;
  softmax();
  keep_first(best_first, [&](double sum, size_t count) { return sum >= p && count >= min_keep; });
}

void Candidates::min_p(float p, size_t min_keep) {
  if (p <= 0 || empty()) return;
  const float least = std::ranges::max(list_, {}, &Candidate::logit).logit + std::log(std::min(p, 1.0F));
  const auto likely = std::ranges::count_if(list_, [&](const Candidate& c) { return c.logit >= least; });
  const size_t wanted = std::max<size_t>({static_cast<size_t>(likely), min_keep, 1});
  if (wanted == static_cast<size_t>(likely))
    keep_if([&](const Candidate& c) { return c.logit >= least; });
  else
    keep_first(best_first, [&](double, size_t count) { return count >= wanted; });
}

void Candidates::drop_top(float threshold, size_t min_keep) {
  if (threshold > 0.5F || list_.size() < 2) return;
  softmax();
  size_t likely = 0;
  const Candidate* last = nullptr;
  for (const Candidate& c : list_)
    if (c.p >= threshold) {
      ++likely;
      if (!last || better(*last, c)) last = &c;
    }
  if (likely < 2 || list_.size() - (likely - 1) < min_keep) return;
  keep_if([&, kept = *last](const Candidate& c) { return !better(c, kept); });
}

void Candidates::limit_surprise(float bits) {
  softmax();
  const auto expected = [&](const Candidate& c) { return -std::log2(c.p) <= bits; };
  if (std::ranges::any_of(list_, expected))
    keep_if(expected);
  else
    temperature(0);
}

void Candidates::temperature(float t) {
  if (empty()) return;
  const Candidate best = *std::ranges::min_element(list_, better);
  if (t > 0)
    for (Candidate& c : list_) c.logit = (c.logit - best.logit) / t;  // no infinities however small t is
  else
    list_.assign(1, best);
}

void Candidates::softmax() {
  if (empty()) return;
  const float max = std::ranges::max(list_, {}, &Candidate::logit).logit;
  double sum = 0;
  for (Candidate& c : list_) {
    c.p = std::exp(c.logit - max);
    sum += c.p;
  }
  const auto scale = static_cast<float>(1 / sum);
  for (Candidate& c : list_) c.p *= scale;
}

const Candidate& Candidates::at_share(double share) const {
  double all = 0, sum = 0;
  for (const Candidate& c : list_) all += c.p;
  const Candidate* last = &list_.front();
  for (const Candidate& c : list_) {
    if (c.p == 0) continue;
    last = &c;
    sum += c.p;
    if (sum > share * all) break;
  }
  return *last;
}

}  // namespace weft
