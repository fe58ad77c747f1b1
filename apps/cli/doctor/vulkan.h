#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctor/system.h"

namespace weft::doctor {

/// VkDriverId, as far as the checks name one.
enum class DriverId : uint32_t {
  unknown = 0,
  radv = 3,
  nvidia = 4,
  intel = 6,
  qualcomm = 8,
  swiftshader = 10,
  llvmpipe = 13,
  moltenvk = 14,
  turnip = 18,
  dozen = 23,
  nvk = 24,
  honeykrisp = 26,
};

struct VulkanDevice {
  std::string name, driver_name, driver_info;
  uint32_t type = 0;  ///< VkPhysicalDeviceType: 0 other, 1 integrated, 2 discrete, 3 virtual, 4 CPU
  uint32_t vendor_id = 0, device_id = 0, api_version = 0;
  DriverId driver = DriverId::unknown;
  std::vector<uint32_t> conformance = {0, 0, 0, 0};  ///< version of the conformance test passed; 0 = none

  bool is_cpu() const { return type == 4 || driver == DriverId::llvmpipe || driver == DriverId::swiftshader; }
};

const char* device_type_name(uint32_t type);
std::string version_text(uint32_t api_version);

/// What Vulkan says about this machine.
struct Vulkan {
  bool loader_found = false;
  std::string loader_error;  ///< why the loader could not be loaded
  int create_rc = 0;         ///< VkResult of vkCreateInstance
  std::vector<VulkanDevice> devices;
  std::string
      failure;  ///< the probe crashed or hung: "signal 11 (Segmentation fault)"; empty = it ended well
  bool timed_out = false;
  std::string errors;  ///< what the loader and the drivers wrote to standard error

  bool works() const { return loader_found && create_rc == 0 && failure.empty() && !devices.empty(); }
  bool has(DriverId driver) const;
  bool only_software() const;
};

/// Loads libvulkan.so.1, creates an instance and lists the devices, all in a child process with a deadline.
Vulkan probe_vulkan(const System& system);

}  // namespace weft::doctor
