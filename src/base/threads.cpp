#include "base/threads.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/env.h"

namespace weft {
namespace {

thread_local bool inside_loop = false;

// Parts of ThreadPool::state_; the number of the loop wraps around.
constexpr uint64_t kOpen = uint64_t{1} << 32, kUsers = kOpen - 1, kGeneration = kOpen << 1;

/// Waits up to 50 us for done(); true when it came. Yields in between: where there are more threads than
/// cores, the one that is waited for needs the core.
template <typename Done>
bool spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int turn = 0; turn < 64; ++turn) {
      if (done()) return true;
      hwy::Pause();
    }
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = env::thread_count();
  loop_.parts = std::vector<Part>(static_cast<size_t>(threads));
  for (size_t i = 1; i < loop_.parts.size(); ++i)
    workers_.emplace_back([this, i](const std::stop_token& stop) { work(i, stop); });
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();  // joins before the members they use go away
}

void ThreadPool::run_pieces(size_t thread) {
  inside_loop = true;
  try {
    for (size_t i = 0; i < loop_.parts.size(); ++i) {
      Part& part = loop_.parts[(thread + i) % loop_.parts.size()];
      for (;;) {
        const size_t begin = part.next.fetch_add(loop_.grain);
        if (begin >= part.end) break;
        (*loop_.body)(begin, std::min(begin + loop_.grain, part.end));
      }
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!loop_.error) loop_.error = std::current_exception();
    for (Part& part : loop_.parts) part.next = part.end;
  }
  inside_loop = false;
}

void ThreadPool::work(size_t thread, const std::stop_token& stop) {
  uint64_t seen = 0, state = 0;
  const auto is_new = [&] {
    state = state_.load();
    return (state & kOpen) != 0 && state / kGeneration != seen;
  };
  const auto next_loop = [&] {  // false: the pool ends
    if (spin_until([&] { return is_new() || stop.stop_requested(); })) return !stop.stop_requested();
    std::unique_lock lock(mutex_);
    // Either for_each, which opens first and counts sleepers then, sees this one, or is_new sees its loop.
    ++sleepers_;
    const bool found = wake_.wait(lock, stop, is_new);
    --sleepers_;
    return found;
  };
  while (next_loop()) {
    if (!state_.compare_exchange_strong(state, state + 1)) continue;
    seen = state / kGeneration;
    run_pieces(thread);
    if ((state_.fetch_sub(1) & (kOpen | kUsers)) == 1) {  // the last one, and for_each waits
      {
        const std::lock_guard lock(mutex_);
      }
      idle_.notify_one();
    }
  }
}

void ThreadPool::for_each(size_t count, size_t grain, const std::function<void(size_t, size_t)>& body) {
  grain = std::max<size_t>(grain, 1);
  if (workers_.empty() || inside_loop || count <= grain) {
    for (size_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count));
    return;
  }
  const std::lock_guard caller(callers_);
  loop_.body = &body;
  loop_.grain = grain;
  const size_t pieces = (count + grain - 1) / grain, parts = loop_.parts.size();
  for (size_t i = 0; i < parts; ++i) {
    loop_.parts[i].next = pieces * i / parts * grain;
    loop_.parts[i].end = std::min(pieces * (i + 1) / parts * grain, count);
  }
  state_ += kGeneration + kOpen;
  if (sleepers_ > 0) {
    {
      const std::lock_guard lock(mutex_);
    }  // a worker between its test and its sleep holds it
    wake_.notify_all();
  }
  run_pieces(0);
  state_ &= ~kOpen;
  const auto is_empty = [&] { return (state_.load() & kUsers) == 0; };
  if (!spin_until(is_empty)) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, is_empty);
  }
  if (loop_.error) std::rethrow_exception(std::exchange(loop_.error, nullptr));
}

}  // namespace weft
