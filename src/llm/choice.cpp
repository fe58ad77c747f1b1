#include "llm/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/shorthand.h"

namespace weft::llm {
namespace {

constexpr int64_t kMaxTopK = 256;  // whose candidates are compared each with each
constexpr int64_t kPart = 32;      // logits whose maximum the product that makes them finds on its way
constexpr float kNever = 1e30F;    // kernels compare with infinities as they please

/// Of each row, the token in whose part of the weights (n, candidates) `share` (n, 1) lies, in the order of
/// `ids`. `up_to`: of each candidate, the weights of all ids up to its own.
Array at_share(const Array& ids, const Array& weights, const Array& up_to, const Array& share) {
  const Array all = max(up_to, {-1}, true), likely = gt(weights, scalar_like(weights, 0));
  const Array none = scalar_like(ids, std::numeric_limits<int32_t>::max());
  const Array found =
      min(where(call("logical_and", {likely, gt(up_to, share * all)}), ids, none), {-1}, true);
  const Array last = max(where(likely, ids, scalar_like(ids, -1)), {-1}, true);  // where rounding left none
  return reshape(where(eq(found, none), last, found), {-1});
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

std::array<float, Choice::kSettings> Choice::settings() const {
  return {top_p < 1 ? top_p : kNever, min_p > 0 ? std::log(std::min(min_p, 1.0F)) : -kNever, temperature,
          static_cast<float>(top_k)};
}

Array likeliest(const Array& logits) {
  const int64_t rows = logits.shape(0), n = logits.shape(-1);
  Array part = reshape(logits, {rows, n}), first;
  if (n % kPart == 0) {
    const Array parts = reshape(logits, {rows, n / kPart, kPart}), best = argmax(max(parts, {-1}), -1, true);
    part = reshape(gather(parts, expand(unsqueeze(best, -1), {rows, 1, kPart}), 1), {rows, kPart});
    first = best * kPart;
  }
  const Array place = argmax(part, -1, true), value = max(part, {-1}, true),
              id = first ? first + place : place;
  return reshape(where(eq(value, value), id, scalar_like(id, -1)), {-1});
}

Array choose(int64_t top_k, const Array& logits, const Array& share, const Array& settings) {
  if (top_k == 1) return likeliest(logits);
  const auto setting = [&](int64_t i) { return slice_dim(settings, 1, i, i + 1); };  // (n, 1)
  const Array top_p = setting(0), least = setting(1), temperature = setting(2), most = setting(3);
  const Array number = unsqueeze(share, 1);
  const auto weigh = [&](const Array& x, const Array& best) {
    const Array kept = call("ge", {x, best + least});
    return where(kept, exp((x - best) / temperature), scalar_like(x, 0));
  };
  if (top_k == 0) {
    const Array weights = weigh(logits, max(logits, {-1}, true));
    return at_share(iota(logits.shape(1), logits), weights, cumsum(weights, 1), number);
  }
  top_k = std::min(top_k, logits.shape(1));
  const Sorted best = topk(logits, top_k, 1);
  const Array rank = iota(top_k, logits);
  const Array values = where(lt(as(rank, DType::f32), most), best.values, scalar_like(best.values, -kNever));
  const Array likely = softmax(values, 1);
  const Array before = cumsum(likely, 1) - likely;
  const Array kept = call("logical_or", {eq(rank, scalar_like(rank, 0)), lt(before, top_p)});
  const Array weights = where(kept, weigh(values, slice_dim(values, 1, 0, 1)), scalar_like(values, 0));
  const Array not_behind = call("le", {unsqueeze(best.indices, 1), unsqueeze(best.indices, 2)});
  const Array up_to = sum(where(not_behind, unsqueeze(weights, 1), scalar_like(weights, 0)), {2});
  return at_share(best.indices, weights, up_to, number);
}

}  // namespace weft::llm
