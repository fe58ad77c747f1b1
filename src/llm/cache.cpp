#include "llm/cache.h"

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
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<int64_t>(sequence.tokens.size());
    if (position == std::ssize(sequence.pages) * kPageRows) sequence.pages.push_back(pages.take());
    sequence.tokens.push_back(tokens[i]);
    if (all || i + 1 == tokens.size()) batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.tokens.push_back(tokens[i]);
    batch.positions.push_back(static_cast<int32_t>(position));
    batch.sequences.push_back(sequence.index);
    batch.rows.push_back(sequence.row(position));
  }
}

size_t filled_keys(size_t count) {
  // Quarters of powers of two: at most a fifth of the keys are fill.
  const size_t step = std::max<size_t>(std::bit_floor(count) / 4, kKeyStep);
  return (count + step - 1) / step * step;
}

void add_keys(Batch& batch, std::span<const Sequence* const> sequences) {
  for (const Sequence* sequence : sequences)
    for (size_t position = 0; position < sequence->tokens.size(); ++position) {
      batch.key_rows.push_back(sequence->row(static_cast<int64_t>(position)));
      batch.key_positions.push_back(static_cast<int32_t>(position));
      batch.key_sequences.push_back(sequence->index);
    }
  const size_t filled = filled_keys(batch.key_rows.size());
  batch.key_rows.resize(filled, 0);
  batch.key_positions.resize(filled, 0);
  batch.key_sequences.resize(filled, -1);
}

void truncate(Sequence& sequence, size_t length, Pages& pages) {
  sequence.tokens.resize(length);
  const size_t needed = (length + kPageRows - 1) / kPageRows;
  for (; sequence.pages.size() > needed; sequence.pages.pop_back()) pages.give_back(sequence.pages.back());
}

}  // namespace weft::llm
