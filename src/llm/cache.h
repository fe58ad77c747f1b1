#pragma once

#include <cstdint>
#include <vector>

#include "llm/config.h"
#include "weft/array.h"
#include "weft/text.h"

namespace weft::llm {

/// Rows of the caches that one page has. A sequence takes whole pages.
inline constexpr int64_t kPageRows = 32;
constexpr int64_t pages_for(int64_t tokens) {
  return (tokens + kPageRows - 1) / kPageRows;
}

/// Numbers of keys are multiples of it.
inline constexpr int64_t kKeyStep = 64;

/// What one forward pass computes: tokens of one or several sequences, one behind the other.
struct Batch {
  // Per token.
  std::vector<int32_t> tokens, positions;
  std::vector<int32_t> sequences;  ///< counted from 0 in the order they come
  std::vector<int32_t> states;     ///< Sequence::index
  std::vector<int32_t> rows;       ///< of the caches, where its key and value go
  // Per key that may be seen: `pitch` of each sequence, in the order of their positions. Fill: sequence -1.
  std::vector<int32_t> key_rows, key_positions, key_sequences;
  int64_t pitch = 0;
  std::vector<int32_t> outputs;  ///< tokens whose logits are wanted
  bool activations = false;      ///< instead of logits
  bool is_long = false;          ///< as its sequences

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

/// Keys and values of one layer, or the state of a recurrent one; on the layer's device.
struct LayerCache {
  Array keys, values;         ///< (rows, elements)
  std::vector<Array> states;  ///< (sequences, ..)
};

/// The pages of a cache: who has which. Page 0 belongs to nobody; fill points at it.
class Pages {
 public:
  explicit Pages(int64_t count);
  int32_t take();  ///< ErrorKind::memory when none is left
  void give_back(int32_t page) { free_.push_back(page); }
  int64_t left() const { return static_cast<int64_t>(free_.size()); }

 private:
  std::vector<int32_t> free_;
};

/// A text in the making: its tokens, and the pages of their keys.
struct Sequence {
  int32_t index = 0;            ///< of its recurrent state
  std::vector<TokenId> tokens;  ///< that the cache has
  std::vector<int32_t> pages;
  bool is_long = false;  ///< its keys are turned as those of a text beyond Config::rope_border()

  int32_t row(int64_t position) const {
    return pages[static_cast<size_t>(position / kPageRows)] * static_cast<int32_t>(kPageRows) +
           static_cast<int32_t>(position % kPageRows);
  }
};

/// Appends tokens of a sequence to a batch, and takes the pages they need. `all`: logits of every token are
/// wanted, otherwise of the last.
void append(Batch& batch, Sequence& sequence, std::span<const TokenId> tokens, Pages& pages, bool all);

/// Pages that a sequence of so many tokens takes besides those it has.
int64_t missing_pages(const Sequence& sequence, int64_t tokens);

/// The number that `count` keys are filled up to, so that few numbers occur: a new one is a new plan.
size_t filled_keys(size_t count);

/// Adds the keys of all sequences of the batch, in the order in which they were appended.
void add_keys(Batch& batch, std::span<const Sequence* const> sequences);

/// Forgets tokens from `length` on.
void truncate(Sequence& sequence, size_t length, Pages& pages);

}  // namespace weft::llm
