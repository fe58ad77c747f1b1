#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

/// Workers for data-parallel loops. The calling thread always takes part, so a pool of one thread starts none
/// and everything runs inline (WebAssembly without threads). A worker looks out for the next loop for 50 us
/// before it goes to sleep: waking it takes about as long.
class ThreadPool {
 public:
  /// 0 = WEFT_THREADS, or one per core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(begin, end) over [0, count) in pieces of `grain`; returns when all are done. Each thread has
  /// a part of its own and goes through it from the front, then helps with the others': memory that is read
  /// from one end to the other comes twice as fast as pieces taken in turns (60 and 29 GB/s). The first
  /// exception of a body is rethrown here, the pieces not yet begun are dropped. Calls from inside a body,
  /// and loops of a single piece, run inline and wake nobody.
  void for_each(size_t count, size_t grain, const std::function<void(size_t, size_t)>& body);

 private:
  /// What a thread begins with. On a cache line of its own.
  struct alignas(64) Part {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };
  struct Loop {
    const std::function<void(size_t, size_t)>* body = nullptr;
    size_t grain = 1;
    std::vector<Part> parts;   // one per thread
    std::exception_ptr error;  // guarded by mutex_
  };

  void work(size_t thread, const std::stop_token& stop);
  void run_pieces(size_t thread);

  std::mutex callers_;  // one loop at a time
  Loop loop_;           // changed only while state_ is closed and has no users
  /// Which loop it is, whether workers may join it, and how many are in it: one word, so that a worker joins
  /// exactly the loop it saw.
  std::atomic<uint64_t> state_{0};
  std::atomic<int> sleepers_{0};  // workers that need a notification
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable idle_;
  std::vector<std::jthread> workers_;
};

}  // namespace weft
