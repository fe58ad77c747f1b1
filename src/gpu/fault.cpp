#include "gpu/fault.h"

#include <cstdlib>

#include "base/env.h"
#include "base/error.h"

namespace weft::gpu {

FaultPlan::FaultPlan(const std::vector<std::string>& faults) {
  for (const std::string& text : faults) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    const int count = colon == std::string::npos ? 1 : std::atoi(text.c_str() + colon + 1);
    if (name == "device_lost")
      plan(Fault::device_lost, count);
    else if (name == "oom")
      plan(Fault::oom, count);
    else if (name == "map_timeout")
      plan(Fault::map_timeout, count);
    else
      fail(ErrorKind::invalid, "[fault] '{}' is not known; use device_lost, oom or map_timeout, with :N",
           text);
  }
}

std::shared_ptr<FaultPlan> FaultPlan::from_environment() {
  static const auto plan = std::make_shared<FaultPlan>(env::get_list("WEFT_FAULT"));
  return plan;
}

void FaultPlan::plan(Fault fault, int calls, bool all_from_there) {
  stays_[static_cast<size_t>(fault)] = all_from_there;
  left_[static_cast<size_t>(fault)] = calls;
}

bool FaultPlan::fires(Fault fault) {
  std::atomic<int>& left = left_[static_cast<size_t>(fault)];
  if (left.load(std::memory_order_relaxed) == 0 || left.fetch_sub(1) != 1) return false;
  if (stays_[static_cast<size_t>(fault)]) left = 1;
  return true;
}

}  // namespace weft::gpu
