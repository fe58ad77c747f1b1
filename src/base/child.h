#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

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

/// How a program ended.
struct ProgramResult {
  int status = 0;      ///< exit status; 128 + N for signal N; 127 when there is no such program
  std::string output;  ///< standard output
  std::string errors;  ///< standard error (last 4 KiB)
};

/// Runs a program that is looked for in PATH. `tick` is called ten times a second with the output so far;
/// what it throws ends the program. `input` (4 KiB at most) is its standard input: unlike arguments, nobody
/// else can read it. The program does not outlive us.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::function<void(const std::string& output)>& tick = {},
                          const std::string& input = {});

}  // namespace weft
