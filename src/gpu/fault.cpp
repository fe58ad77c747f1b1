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
      left_[static_cast<int>(Fault::device_lost)] = count;
    else if (name == "oom")
      left_[static_cast<int>(Fault::oom)] = count;
    else if (name == "map_timeout")
      left_[static_cast<int>(Fault::map_timeout)] = count;
    else
      fail(ErrorKind::invalid, "[fault] '{}' is not known; use device_lost, oom or map_timeout, with :N",
           text);
  }
}

std::shared_ptr<FaultPlan> FaultPlan::from_environment() {
  static const auto plan = std::make_shared<FaultPlan>(env::get_list("WEFT_FAULT"));
  return plan;
}

bool FaultPlan::fires(Fault fault) {
  std::atomic<int>& left = left_[static_cast<int>(fault)];
  return left.load(std::memory_order_relaxed) > 0 && left.fetch_sub(1) == 1;
}

}  // namespace weft::gpu
