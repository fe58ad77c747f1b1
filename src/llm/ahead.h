#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "llm/model.h"
#include "llm/sampler.h"

namespace weft::llm {

/// Tokens that a device makes while the host still reads the ones before them: several per submit, and
/// another submit on its way. The sequence only has what was taken, as if each token had been waited for;
/// what nobody took is forgotten.
class Ahead {
 public:
  /// Not on the CPU: it would make what nobody takes in the time of what is asked for.
  static bool possible(const Model& model);

  /// `steps`: per submit; 0: more and more, as long as they come fast.
  Ahead(Model& model, Sequence& sequence, Sampler& sampler, const Choice& choice, int64_t steps);
  ~Ahead();
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  /// Tokens that may follow the sequence's. None where the host has to do something first: shift a context,
  /// compute a text anew at the border of longrope, or all of it when the device is not there any more.
  int64_t room() const;

  /// The token behind `last`, which the sequence has then. No more than `wanted` are computed, this one
  /// counted. Needs room.
  TokenId next(TokenId last, int64_t wanted);

 private:
  using Clock = std::chrono::steady_clock;
  void submit(TokenId last, int64_t wanted);
  void receive();

  Model& model_;
  Sequence& sequence_;
  Sampler& sampler_;
  Choice choice_;
  bool grows_;
  int64_t steps_;                   ///< of the next submit
  int64_t open_ = 0;                ///< tokens submitted and not taken
  std::deque<Steps::Chosen> sent_;  ///< not received
  std::deque<TokenId> ready_;       ///< received
  Clock::time_point received_ = Clock::now();
};

}  // namespace weft::llm
