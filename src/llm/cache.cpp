#include "llm/cache.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace weft::llm {

Pages::Pages(int64_t count) {
  for (int64_t page = count - 1; page > 0; --page) free_.push_back(static_cast<int32_t>(page));
}

int32_t Pages::take() {
  if (free_.empty()) fail(ErrorKind::memory, "[cache] no page is left; a larger context (-c) has more");
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void append(Batch& batch, Sequence& sequence, std::span<const TokenId> tokens, Pages& pages, bool all) {
  batch.is_long |= sequence.is_long;
  const int32_t number = batch.sequences.empty() ? 0 : batch.sequences.back() + 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<int64_t>(sequence.tokens.size());
    if (position == std::ssize(sequence.pages) * kPageRows) sequence.pages.push_back(pages.take());
    sequence.tokens.push_back(tokens[i]);
    if (all || i + 1 == tokens.size()) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.tokens.push_back(tokens[i]);
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.sequences.push_back(number);
    batch.states.push_back(sequence.index);
    batch.rows.push_back(sequence.row(position));
  }
}

int64_t missing_pages(const Sequence& sequence, int64_t tokens) {
  return std::max<int64_t>(pages_for(tokens) - std::ssize(sequence.pages), 0);
}

size_t filled_keys(size_t count) {
  // Quarters of powers of two: at most a fifth of the keys are fill.
  const size_t step = std::max<size_t>(std::bit_floor(count) / 4, kKeyStep);
  return (count + step - 1) / step * step;
}

void add_keys(Batch& batch, std::span<const Sequence* const> sequences) {
  size_t longest = 0;
  for (const Sequence* sequence : sequences) longest = std::max(longest, sequence->tokens.size());
  batch.pitch = static_cast<int64_t>(filled_keys(longest));
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Sequence& sequence = *sequences[s];
    const int64_t rows = std::ssize(sequence.pages) * kPageRows;
    for (int64_t position = 0; position < batch.pitch; ++position) {
      const bool is_there = position < std::ssize(sequence.tokens);
      batch.key_rows.push_back(position < rows ? sequence.row(position) : 0);
      batch.key_positions.push_back(static_cast<int32_t>(position));
      batch.key_sequences.push_back(is_there ? static_cast<int32_t>(s) : -1);
    }
  }
}

void truncate(Sequence& sequence, size_t length, Pages& pages) {
  sequence.tokens.resize(length);
  const int64_t needed = pages_for(static_cast<int64_t>(length));
  for (; std::ssize(sequence.pages) > needed; sequence.pages.pop_back())
    pages.give_back(sequence.pages.back());
}

}  // namespace weft::llm
