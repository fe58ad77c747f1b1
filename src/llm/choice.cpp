#include "llm/choice.h"

#include <cmath>
#include <limits>

#include "ops/shorthand.h"

namespace weft::llm {
namespace {

constexpr int64_t kMaxTopK = 256;  // whose candidates are compared each with each
constexpr float kNever = 1e30F;    // kernels compare with infinities as they please

/// The token in whose part of the weights (candidates) `share` lies, in the order of `ids`. `up_to`: of each
/// candidate, the weights of all ids up to its own.
Array at_share(const Array& ids, const Array& weights, const Array& up_to, const Array& share) {
  const Array all = max(up_to, {0}, true), likely = gt(weights, scalar_like(weights, 0));
  const Array none = scalar_like(ids, std::numeric_limits<int32_t>::max());
  const Array found = min(where(call("logical_and", {likely, gt(up_to, share * all)}), ids, none), {0}, true);
  const Array last = max(where(likely, ids, scalar_like(ids, -1)), {0}, true);  // where rounding left none
  return where(eq(found, none), last, found);
}

}  // namespace

std::optional<Choice> choice_of(const SamplerOptions& o) {
  const bool plain = o.typical_p >= 1 && o.repeat_penalty == 1 && o.frequency_penalty == 0 &&
                     o.presence_penalty == 0 && o.logit_bias.empty() && o.mirostat == 0 &&
                     o.dry_multiplier == 0 && o.xtc_probability <= 0 && o.min_keep <= 1;
  if (!plain) return std::nullopt;
  if (o.temperature <= 0 || o.top_k == 1) return Choice{};
  const bool all = o.top_k <= 0;
  if (all ? o.top_p < 1 : o.top_k > kMaxTopK) return std::nullopt;
  return Choice{all ? 0 : o.top_k, o.top_p, o.min_p, o.temperature};
}

std::vector<float> Choice::settings() const {
  return {top_p < 1 ? top_p : kNever, min_p > 0 ? std::log(min_p) : -kNever, temperature};
}

Array likeliest(const Array& logits) {
  const Array best = argmax(logits, -1, true), value = gather(logits, best, -1);
  return reshape(where(eq(value, value), best, scalar_like(best, -1)), {-1});
}

Array choose(int64_t top_k, const Array& logits, const Array& share, const Array& settings) {
  const Array flat = reshape(logits, {-1});
  const Array top_p = slice_dim(settings, 0, 0, 1), least = slice_dim(settings, 0, 1, 2),
              temperature = slice_dim(settings, 0, 2, 3);
  if (top_k == 1) return likeliest(logits);
  const auto weigh = [&](const Array& x, const Array& best) {
    const Array kept = call("ge", {x, best + least});
    return where(kept, exp((x - best) / temperature), scalar_like(x, 0));
  };
  if (top_k == 0 || top_k >= flat.size()) {
    const Array weights = weigh(flat, max(flat, {0}, true));
    return at_share(iota(flat.size(), flat), weights, cumsum(weights, 0), share);
  }
  const Sorted best = topk(flat, top_k, 0);
  const Array likely = softmax(best.values, 0);
  const Array before = cumsum(likely, 0) - likely;
  const Array first = eq(iota(top_k, flat), scalar_like(best.indices, 0));
  const Array kept = call("logical_or", {first, lt(before, top_p)});
  const Array weights =
      where(kept, weigh(best.values, slice_dim(best.values, 0, 0, 1)), scalar_like(best.values, 0));
  const Array not_behind = call("le", {unsqueeze(best.indices, 0), unsqueeze(best.indices, 1)});
  const Array up_to = sum(where(not_behind, unsqueeze(weights, 0), scalar_like(weights, 0)), {1});
  return at_share(best.indices, weights, up_to, share);
}

}  // namespace weft::llm
