#pragma once

#include <functional>
#include <map>

#include "backend/backend.h"
#include "llm/cache.h"
#include "llm/choice.h"
#include "weft/compile.h"

namespace weft::llm {

class Model;

/// Passes of one token of each of several sequences, one behind the other. They are recorded, for a few
/// numbers of sequences and keys, and run again with what changes: a few numbers that the device looks up by
/// itself in a table of the next steps, so that nothing has to come from the host between one and the next.
class Steps {
 public:
  explicit Steps(Model& model) : model_(model) {}

  /// Whether steps can stand for passes of single tokens: all layers are on one device, and a step depends
  /// on nothing but tokens, their positions and the caches' rows.
  bool possible() const;

  /// What a step has of a sequence. All sequences of a step are long, or none is.
  struct Place {
    Sequence* sequence = nullptr;  ///< null: nobody's
    int64_t position = 0;          ///< of the next step
    TokenId token = kNoToken;      ///< kNoToken: the one that the step before chose in this place
    Choice choice = {};            ///< of the token behind it
    /// The number for the token that a position's step chooses.
    std::function<double(int64_t position)> share = {};
  };

  /// Logits (n, vocabulary) of a token in each place, which the sequences have then. Rows of nobody may
  /// follow: few numbers of places are recorded.
  Array logits(std::vector<Place> places);

  /// From here on tokens are chosen on the device, for these places.
  void start(std::vector<Place> places);
  /// A number for each start, by whoever it was.
  uint64_t started() const { return started_; }

  /// Up to `count` steps, submitted as one: fewer where the table ends. Their tokens are on their way. Takes
  /// pages, but leaves the sequences' tokens as they are.
  struct Chosen {
    int64_t count = 0, places = 0;
    std::unique_ptr<PendingRead> ids;  ///< i32 (count, places)
  };
  Chosen run(int64_t count);

 private:
  /// The caches' rows of all keys, i32 (places * keys), and the pages that they are of.
  struct KeyRows {
    Array rows;
    std::vector<std::vector<int32_t>> pages;  ///< by place
  };
  /// What steps of a number of places read and leave.
  struct Lists {
    Array tokens;                         ///< i32 (places), of the next step
    Array at;                             ///< the next step's row of the table
    Array table;                          ///< i32 (steps, columns)
    Array settings;                       ///< f32 (places, Choice::kSettings)
    Array ids;                            ///< i32 (steps, places): the tokens chosen
    std::map<int64_t, KeyRows> key_rows;  ///< by the number of keys
  };
  Lists& lists() { return lists_[std::ssize(places_)]; }

  /// Writes into the array's own memory, so that plans find the same buffer there.
  template <typename T>
  void put(Array& to, const std::vector<T>& values, const Shape& shape);
  void put_tokens();
  void put_table();
  void put_key_rows();
  bool goes_on(const std::vector<Place>& places) const;
  Array step(int64_t ends);
  ArraysFunction record(int64_t ends);

  Model& model_;
  /// By what they end with, a choice's top_k or logits, and Sequence::is_long.
  std::map<std::pair<int64_t, bool>, ArraysFunction> recorded_;
  std::map<int64_t, Lists> lists_;  ///< by the number of places
  // Of the sequences at hand.
  std::vector<Place> places_;                ///< as they are where the table begins
  std::vector<std::vector<int32_t>> pages_;  ///< that the table is about
  int64_t next_ = 0, end_ = 0;               ///< steps of the table: the next one, and how many it has
  int64_t keys_ = 0;                         ///< of each sequence
  bool is_long_ = false;
  uint64_t started_ = 0;
};

}  // namespace weft::llm
