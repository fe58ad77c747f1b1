#include "base/awake.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace weft {
namespace {

/// Whether the calling thread runs only where nothing else wants to from now on.
bool stand_last() {
#ifdef __linux__
  const sched_param lowest{};
  return sched_setscheduler(0, SCHED_IDLE, &lowest) == 0;
#else
  return false;
#endif
}

}  // namespace

Awake::~Awake() {
  state_ = leaving;
  state_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Awake::begin() {
  if (threads_.empty())
    for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i)
      threads_.emplace_back([this] { turn(); });
  state_ = turning;
  state_.notify_all();
}

void Awake::end() {
  state_ = sleeping;
}

void Awake::turn() {
  if (!stand_last()) return;
  for (int state = state_; state != leaving; state = state_) {
    if (state == sleeping) state_.wait(sleeping);
  }
}

}  // namespace weft
