#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace weft {

/// How a child process ended.
struct ChildResult {
  enum class End { done, crashed, timed_out };
  End end = End::done;
  std::string output;  ///< what the work returned; empty unless done
  std::string errors;  ///< what the child wrote to standard error (last 4 KiB)
  std::string reason;  ///< "signal 11 (Segmentation fault)", "no answer within 20 s", "exit status 3"

  bool done() const { return end == End::done; }
};

/// Runs `work` in a forked child and returns its string. Drivers abort, hang and print: nothing of that
/// reaches this process. An exception in the child becomes `crashed` with its message as the reason.
ChildResult run_in_child(const std::function<std::string()>& work, std::chrono::milliseconds deadline);

}  // namespace weft
