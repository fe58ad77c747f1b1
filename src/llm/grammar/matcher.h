#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "llm/grammar/grammar.h"
#include "llm/grammar/program.h"

namespace weft {

/// Sorted lists of numbers, each with an id: equal lists have the same.
class ListStore {
 public:
  using List = std::vector<uint64_t>;
  uint32_t id_of(List list);
  const List& operator[](uint32_t id) const { return *lists_[id]; }
  size_t size() const { return lists_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Hash {
    size_t operator()(const List& list) const;
  };
  std::unordered_map<List, uint32_t, Hash> ids_;
  std::vector<const List*> lists_;
  size_t bytes_ = 0;
};

/// Runs a grammar over bytes. All ways in which the text so far can be read are followed at once.
///
/// A state is a list of items: a place in a rule, and the frame to which the rule returns. A frame is what is
/// common to all calls of a rule that began at the same byte: a list of places behind those calls, each with
/// the frame around it. So ambiguity costs items, never a copy of the stack (Scott and Johnstone's GLL works
/// like that). States and frames are numbered by what is in them, and what a byte does to a state is
/// remembered: an automaton that is made as it is needed.
class GrammarMatcher {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;

  GrammarMatcher(std::shared_ptr<const GrammarProgram> program, std::shared_ptr<const TokenTrie> tokens);

  /// Calls of one user must not meet those of another: take this first.
  std::unique_lock<std::mutex> lock();

  State start() const { return start_; }
  State step(State state, uint8_t byte) {
    const State known = steps_[state * program_->byte_classes + program_->byte_class[byte]];
    return known != kUnknown ? known : make_step(state, byte);
  }
  State walk(State state, std::string_view bytes);
  bool may_end(State state) const { return facts_[state].may_end; }
  bool must_end(State state) const { return may_end(state) && states_[state].size() == 1; }
  std::shared_ptr<const TokenMask> allowed(State state);
  const TokenTrie& tokens() const { return *tokens_; }

  /// What is remembered has become too much: time for `restarted`.
  bool is_full() const;
  /// A matcher that knows nothing but one state, and the state's number there.
  std::pair<std::shared_ptr<GrammarMatcher>, State> restarted(State state) const;

 private:
  using Item = uint64_t;  // place << 32 | frame
  static constexpr State kUnknown = static_cast<State>(-1);
  static constexpr uint32_t kBottom = 0;  // the frame around root

  struct Facts {
    std::shared_ptr<const TokenMask> mask;
    bool may_end = false;
  };

  State make_step(State state, uint8_t byte);
  State make_state(std::span<const Item> begin);
  State add_state(ListStore::List items);
  void follow(bool called_here);
  void push(uint32_t place, uint32_t frame);
  void add_call(uint32_t rule, uint32_t next, uint32_t frame);
  void spend(size_t work);

  std::shared_ptr<const GrammarProgram> program_;
  std::shared_ptr<const TokenTrie> tokens_;
  std::mutex mutex_;
  ListStore frames_, states_;
  std::vector<State> steps_;  // (state, byte class)
  std::vector<Facts> facts_;  // (state)
  size_t masks_ = 0;
  State start_ = kDead;
  size_t spent_ = 0;

  // Working memory of make_state.
  std::vector<Item> todo_, items_;
  std::unordered_set<Item> seen_;
  std::vector<std::vector<Item>> calls_;  // by rule: the places behind its calls, with their frames
  std::vector<uint32_t> called_;          // a heap of rules with calls, the lowest rank first
};

}  // namespace weft
