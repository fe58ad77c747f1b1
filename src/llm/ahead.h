#pragma once

#include <chrono>
#include <deque>
#include <list>

#include "llm/model.h"
#include "llm/sampler.h"

namespace weft::llm {

/// Tokens of one or several sequences that a device makes while the host still reads the ones before them:
/// several steps per submit, and another submit on its way. A sequence only has what was taken, as if each
/// token had been waited for; what nobody took is forgotten. Sequences join and leave between two tokens.
class Ahead {
 public:
  /// Not on the CPU: it would make what nobody takes in the time of what is asked for.
  static bool possible(const Model& model);

  /// `steps`: per submit; 0: more and more, as long as they come fast.
  explicit Ahead(Model& model, int64_t steps = 0);
  ~Ahead();
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  /// Whether a sequence can join those that are there: they draw from all tokens, or none does, and turn
  /// their keys alike.
  bool takes(const Sequence& sequence, const Choice& choice) const;
  /// Until it leaves, sequence and sampler stay where they are.
  void join(Sequence& sequence, Sampler& sampler, const Choice& choice);
  void leave(const Sequence& sequence);

  /// Tokens that may follow each sequence's. None where the host has to do something first: shift a context,
  /// compute a text anew at the border of longrope, or all of it when the device is not there any more.
  int64_t room() const;

  /// For each sequence, in the order in which they joined, the token behind its `last`, which it has then.
  /// No more than `wanted` are computed, this one counted. Needs room.
  std::vector<TokenId> next(std::span<const TokenId> last, int64_t wanted);

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    Sequence& sequence;
    Sampler& sampler;
    Choice choice;
    size_t place;                    ///< in a step
    int64_t open = 0;                ///< tokens submitted and not taken
    std::deque<TokenId> ready = {};  ///< of them, those received
  };
  struct Sent {
    Steps::Chosen chosen;
    std::vector<Member*> members;  ///< by their places; null: nobody's
  };
  int64_t fewest_open() const;
  void forget(Member& member);
  void place(std::span<const TokenId> last);
  void submit(std::span<const TokenId> last, int64_t wanted);
  void receive();

  Model& model_;
  bool grows_;
  int64_t steps_;              ///< of the next submit
  std::list<Member> members_;  ///< in the order in which they joined
  std::deque<Sent> sent_;      ///< not received
  size_t places_ = 0;          ///< of a step
  bool changed_ = false;       ///< somebody joined or left, and the places are those from before
  uint64_t started_ = 0;       ///< Steps::started() of those
  Clock::time_point received_ = Clock::now();
};

}  // namespace weft::llm
