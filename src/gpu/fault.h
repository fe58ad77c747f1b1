#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace weft::gpu {

enum class Fault {
  device_lost,  ///< a submit finds the device destroyed
  oom,          ///< an allocation finds no memory
  map_timeout,  ///< a readback's map never completes
};

/// Failures on purpose, so that every layer above can test its recovery on any machine: the Nth submit,
/// allocation or map fails, once. WEFT_FAULT makes one plan for the whole process.
class FaultPlan {
 public:
  /// `device_lost:3` fails the third submit; `oom` the first allocation. Throws on an unknown name.
  explicit FaultPlan(const std::vector<std::string>& faults);

  static std::shared_ptr<FaultPlan> from_environment();

  /// The call of that many from now on fails, or all from there on; 0: none.
  void plan(Fault fault, int calls, bool all_from_there = false);
  /// Counts a call; true when this is the one to fail.
  bool fires(Fault fault);

 private:
  std::array<std::atomic<int>, 3> left_{};  // calls until it fires; 0 = never (again)
  std::array<std::atomic<bool>, 3> stays_{};
};

}  // namespace weft::gpu
