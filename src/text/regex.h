#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/code_set.h"

namespace weft {

/// A pattern as tokenizer.json files have them: Oniguruma's syntax without back references. Matching is that
/// of a backtracking engine (the first alternative that leads to a match), in time linear in the text: a
/// place in the pattern that failed at a place in the text is not tried there again.
class Regex {
 public:
  explicit Regex(std::string_view pattern);

  struct Match {
    size_t begin, end;
  };

 private:
  friend class RegexSearch;
  friend class RegexCompiler;

  enum class Op : uint8_t { set, split, jump, ahead, atomic, assertion, accept };
  struct Instruction {
    Op op;
    bool negative = false;  // ahead
    uint32_t x =
        0;  // set: its index; split: tried first; jump; ahead, atomic: begin of the body; assertion: which
    uint32_t y = 0;     // split: tried then; ahead, atomic: where to go on
    uint32_t back = 0;  // ahead: characters to step back first: look-behind
    uint32_t memo = 0;  // split: its number
  };

  std::vector<Instruction> program_;
  std::vector<CodeSet> sets_;
  uint32_t splits_ = 0;
  /// Of each split: its number among those of atomic groups' bodies, or kNoAtomic.
  std::vector<uint32_t> atomic_;
  uint32_t atomic_splits_ = 0;
  static constexpr uint32_t kNoAtomic = static_cast<uint32_t>(-1);
};

/// Finds matches in one text after another; keeps its memory.
class RegexSearch {
 public:
  explicit RegexSearch(const Regex& regex) : regex_(regex) {}

  /// Valid UTF-8 that outlives the search in it.
  void start(std::string_view text);
  /// The next match. An empty one directly behind a match does not count.
  std::optional<Regex::Match> next();

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  /// What a run keeps of the states on the way to its end. The fact is enough for a look-ahead; an atomic
  /// group goes on from its end. Either makes all runs together linear.
  enum class Keep { nothing, fact, end };
  size_t run(uint32_t begin, size_t pos, Keep keep);
  size_t end_index(size_t state) const;
  bool looks_right(const Regex::Instruction& instruction, size_t pos);
  bool holds(const Regex::Instruction& instruction, size_t pos) const;

  const Regex& regex_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = kNone;

  struct Alternative {
    uint32_t at;
    size_t pos, path;  // length of path_ when it was left for later
  };
  std::vector<Alternative> alternatives_;
  std::vector<size_t> path_;  // states (place in the text, split) that lead to where we are
  std::vector<bool> tried_,
      proven_;  // states that failed or are on the path; states of a look-ahead that led to its end
  std::vector<uint32_t> ends_;  // where states of an atomic group's body led, plus 1; 0: not known
};

}  // namespace weft
