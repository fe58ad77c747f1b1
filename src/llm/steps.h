#pragma once

#include <array>
#include <functional>
#include <map>

#include "backend/backend.h"
#include "llm/cache.h"
#include "llm/choice.h"
#include "weft/compile.h"

namespace weft::llm {

class Model;

/// Passes of one token behind the other. They are recorded, for a few numbers of keys, and run again with
/// what changes: a few numbers that the device looks up by itself in a table of the next positions, so that
/// nothing has to come from the host between one step and the next.
class Steps {
 public:
  explicit Steps(Model& model) : model_(model) {}

  /// Whether steps can stand for passes of a single token: all layers are on one device, and a step depends
  /// on nothing but the token, its position and the caches' rows.
  bool possible() const;

  /// Logits (1, vocabulary) of a token, which the sequence has then.
  Array logits(Sequence& sequence, TokenId token);
  /// Logits of a batch that has one token of each of its sequences. Rows of fill may follow: few numbers of
  /// tokens are recorded.
  Array logits(const Batch& batch);

  /// From here on tokens are chosen on the device. The first step has `token`, which comes next behind those
  /// of the sequence; `share` gives the number for the token that a position's step chooses.
  using Share = std::function<double(int64_t position)>;
  void start(Sequence& sequence, TokenId token, const Choice& choice, Share share);

  /// Up to `count` steps, submitted as one: fewer where the table of positions ends. Their tokens are on
  /// their way. Takes pages, but leaves the sequence's tokens as they are.
  struct Chosen {
    int64_t count = 0;
    std::unique_ptr<PendingRead> ids;  ///< i32
  };
  Chosen run(int64_t count);

 private:
  /// Writes into the array's own memory, so that plans find the same buffer there.
  template <typename T>
  void put(Array& to, const std::vector<T>& values, const Shape& shape);
  void move_to(Sequence& sequence, int64_t position, const Share& share);
  Array step(int64_t ends);
  ArraysFunction record(int64_t ends);
  ArraysFunction record_batches(bool is_long);
  Array forward(std::map<std::string, Array> inputs, bool is_long, std::span<const Array> caches);

  Model& model_;
  /// By what they end with, a choice's top_k or logits, and Sequence::is_long.
  std::map<std::pair<int64_t, bool>, ArraysFunction> recorded_;
  std::array<ArraysFunction, 2> batches_;  ///< by Batch::is_long
  // Of the sequence at hand.
  int64_t position_ = -1;  ///< of the next step
  bool is_long_ = false;
  std::vector<int32_t> pages_;  ///< that the table and the rows are about
  Array at_;                    ///< the next position's row of the table
  Array table_;                 ///< i32 (positions, columns)
  Array rows_;                  ///< i32 (positions): of the caches
  Array key_rows_;              ///< as many of them as there are keys
  Array token_;                 ///< i32 (1), of the next step
  // Of tokens that the device chooses.
  Sequence* sequence_ = nullptr;
  Share share_;
  int64_t top_k_ = 1;
  Array settings_, ids_;  ///< ids_ (positions, 1): the tokens chosen, by their row of the table
};

}  // namespace weft::llm
