#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

/// Workers for data-parallel loops. The calling thread always takes part, so a pool of one thread starts none
/// and everything runs inline (WebAssembly without threads).
class ThreadPool {
 public:
  /// 0 = WEFT_THREADS, or one per core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(begin, end) over [0, count) in pieces of `grain`; returns when all are done. The first
  /// exception of a body is rethrown here, the pieces not yet begun are dropped. Calls from inside a body run
  /// inline.
  void for_each(size_t count, size_t grain, const std::function<void(size_t, size_t)>& body);

 private:
  struct Loop {
    const std::function<void(size_t, size_t)>* body;
    size_t count, grain;
    std::atomic<size_t> next{0};
    int users = 0;             // workers inside; guarded by mutex_
    std::exception_ptr error;  // guarded by mutex_
  };

  void work(std::stop_token stop);
  void run_pieces(Loop& loop);

  std::mutex callers_;  // one loop at a time
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable idle_;
  Loop* loop_ = nullptr;   // guarded by mutex_
  size_t generation_ = 0;  // counts loops, guarded by mutex_
  std::vector<std::jthread> workers_;
};

}  // namespace weft
