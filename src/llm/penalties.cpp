#include "llm/penalties.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft {

std::span<const TokenId> last_tokens(std::span<const TokenId> tokens, int64_t n) {
  return n < 0 ? tokens : tokens.last(std::min(tokens.size(), static_cast<size_t>(n)));
}

DryBreakers::DryBreakers(std::span<const std::string> texts, const Tokenizer& tokenizer) {
  constexpr size_t kMaxText = 40, kMaxTail = 20;  // llama.cpp's
  for (TokenId id = 0; static_cast<size_t>(id) < tokenizer.size(); ++id) {
    const std::string token = tokenizer.bytes_of(id);
    for (const std::string& whole : texts) {
      const std::string_view text = std::string_view(whole).substr(0, kMaxText);
      if (text.empty()) continue;
      if (token.find(text) != std::string::npos) {
        sequences_.push_back({id, {}});
        continue;
      }
      for (size_t common = 1; common < text.size(); ++common) {
        if (!token.ends_with(text.substr(0, common))) continue;
        std::vector<TokenId> tail = tokenizer.encode(text.substr(common));
        tail.resize(std::min(tail.size(), kMaxTail));
        sequences_.push_back({id, std::move(tail)});
      }
    }
  }
  std::ranges::sort(sequences_);
}

size_t DryBreakers::tokens_behind(std::span<const TokenId> tokens) const {
  for (size_t behind = 0; behind < tokens.size(); ++behind) {
    const auto rest = tokens.last(behind);
    const auto heads =
        std::ranges::equal_range(sequences_, tokens[tokens.size() - 1 - behind], {}, &Sequence::head);
    std::optional<size_t> longest;
    for (const Sequence& sequence : heads) {
      const auto& tail = sequence.tail;
      if (tail.size() <= rest.size() && std::ranges::equal(tail, rest.first(tail.size())))
        longest = std::max(longest.value_or(0), tail.size());
    }
    if (longest) return behind - *longest;
  }
  return tokens.size();
}

void Penalties::repetition(const SamplerOptions& options, std::span<const TokenId> history,
                           std::span<float> logits) {
  if (options.repeat_penalty == 1 && options.frequency_penalty == 0 && options.presence_penalty == 0) return;
  of_token_.resize(logits.size());
  const std::span<const TokenId> window = last_tokens(history, options.repeat_last_n);
  const auto known = [&](TokenId id) { return static_cast<size_t>(id) < logits.size(); };
  for (TokenId id : window)
    if (known(id)) ++of_token_[static_cast<size_t>(id)];
  for (TokenId id : window) {
    if (!known(id)) continue;
    float& logit = logits[static_cast<size_t>(id)];
    uint32_t& count = of_token_[static_cast<size_t>(id)];
    if (count == 0) continue;  // done where it came first
    logit = logit > 0 ? logit / options.repeat_penalty : logit * options.repeat_penalty;
    logit -= static_cast<float>(count) * options.frequency_penalty + options.presence_penalty;
    count = 0;
  }
}

void Penalties::dry(const SamplerOptions& options, const DryBreakers& breakers,
                    std::span<const TokenId> history, std::span<float> logits) {
  if (options.dry_multiplier == 0 || options.dry_base < 1) return;
  const std::span<const TokenId> window = last_tokens(history, options.dry_penalty_last_n);
  const auto allowed = static_cast<size_t>(std::max<int64_t>(options.dry_allowed_length, 0));
  const size_t size = window.size();
  if (size <= allowed) return;
  const size_t limit = breakers.tokens_behind(window);
  if (limit < allowed) return;

  // The window read backwards, and common_[k]: how long it and itself from k on are the same (the Z
  // algorithm). So many tokens before place k have been repeated at the end, and the one at k - 1 followed
  // them.
  const auto back = [&](size_t i) { return window[size - 1 - i]; };
  common_.assign(size, 0);
  of_token_.resize(logits.size());
  for (size_t k = 1, begin = 0, end = 0; k < size; ++k) {
    size_t same = k < end ? std::min<size_t>(end - k, common_[k - begin]) : 0;
    while (k + same < size && back(same) == back(k + same)) ++same;
    if (k + same > end) begin = k, end = k + same;
    common_[k] = static_cast<uint32_t>(same);
    const auto next = static_cast<size_t>(back(k - 1));
    const size_t repeated = std::min(same, limit);
    if (repeated < allowed || next >= logits.size()) continue;
    of_token_[next] = std::max(of_token_[next], static_cast<uint32_t>(repeated + 1));  // 0 is none
  }

  const double max_power = std::log(std::numeric_limits<float>::max());
  for (TokenId id : window) {
    if (static_cast<size_t>(id) >= logits.size()) continue;
    uint32_t& repeated = of_token_[static_cast<size_t>(id)];
    if (repeated == 0) continue;
    const double power =
        std::log(static_cast<double>(options.dry_base)) * static_cast<double>(repeated - 1 - allowed);
    logits[static_cast<size_t>(id)] -=
        options.dry_multiplier * static_cast<float>(std::exp(std::min(power, max_power)));
    repeated = 0;
  }
}

}  // namespace weft
