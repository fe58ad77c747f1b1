#include "base/threads.h"

#include <algorithm>

#include "base/env.h"

namespace weft {
namespace {

thread_local bool inside_loop = false;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0)
    threads = env::get_count("WEFT_THREADS").value_or(static_cast<int>(std::thread::hardware_concurrency()));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this](std::stop_token stop) { work(stop); });
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();  // joins before the members they use go away
}

void ThreadPool::run_pieces(Loop& loop) {
  inside_loop = true;
  try {
    for (;;) {
      const size_t begin = loop.next.fetch_add(loop.grain);
      if (begin >= loop.count) break;
      (*loop.body)(begin, std::min(begin + loop.grain, loop.count));
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!loop.error) loop.error = std::current_exception();
    loop.next = loop.count;
  }
  inside_loop = false;
}

void ThreadPool::work(std::stop_token stop) {
  size_t seen = 0;
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [&] { return loop_ && generation_ != seen; })) {
    seen = generation_;
    Loop& loop = *loop_;
    ++loop.users;
    lock.unlock();
    run_pieces(loop);
    lock.lock();
    if (--loop.users == 0) idle_.notify_one();
  }
}

void ThreadPool::for_each(size_t count, size_t grain, const std::function<void(size_t, size_t)>& body) {
  grain = std::max<size_t>(grain, 1);
  if (workers_.empty() || inside_loop || count <= grain) {
    for (size_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count));
    return;
  }
  const std::lock_guard caller(callers_);
  Loop loop{.body = &body, .count = count, .grain = grain, .error = nullptr};
  {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
    ++generation_;
  }
  wake_.notify_all();
  run_pieces(loop);
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return loop.users == 0; });
  loop_ = nullptr;
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace weft
