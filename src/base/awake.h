#pragma once

#include <atomic>
#include <thread>
#include <vector>

namespace weft {

/// Keeps cores from falling asleep while they are needed again and again for microseconds: a thread for each
/// that turns in a loop and runs only where nothing else wants to (SCHED_IDLE). A virtual core that halted
/// takes tens of microseconds to come back. Where there is no such priority nothing happens.
class Awake {
 public:
  Awake() = default;
  ~Awake();
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

  /// They turn as long as it lives, one at a time.
  class While {
   public:
    explicit While(Awake& awake) : awake_(awake) { awake_.begin(); }
    ~While() { awake_.end(); }
    While(const While&) = delete;
    While& operator=(const While&) = delete;

   private:
    Awake& awake_;
  };

 private:
  enum State : int { sleeping, turning, leaving };
  void begin();  ///< the first one starts the threads
  void end();
  void turn();

  std::atomic<int> state_{sleeping};
  std::vector<std::thread> threads_;
};

}  // namespace weft
