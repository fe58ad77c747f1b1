#include "weft/device.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/select.h"
#include "gpu/probe.h"

namespace weft {

Device::Device() {
  static const auto cpu = std::make_shared<CpuBackend>();
  backend_ = cpu;
}

Device Device::open(const std::string& wanted) {
  if (wanted == "cpu") return {};
  const DeviceChoice choice = choose_device(wanted, list_devices(gpu::probe_all()));
  return choice.device.is_cpu() ? Device() : Device(open_device(choice.device));
}

std::string Device::name() const {
  return backend_->name();
}

void synchronize(const Device& device) {
  device.backend().synchronize();
}

}  // namespace weft
