#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "doctor/vulkan_abi.h"

// A Vulkan loader that says what the file named by STUB_VULKAN tells it to. One instruction per line:
//   create -9                   return code of vkCreateInstance
//   stderr TEXT                 written to standard error
//   crash | hang                what vkCreateInstance does
//   device NAME|TYPE|DRIVER_ID|DRIVER_NAME|DRIVER_INFO|CONFORMANCE_MAJOR|VENDOR
namespace vk = weft::doctor::vk;

namespace {

struct Device {
  std::string name, driver_name, driver_info;
  uint32_t type = 0, driver = 0, conformance = 0, vendor = 0;
};

std::vector<Device>& devices() {
  static std::vector<Device> list;
  return list;
}

Device parse(const std::string& text) {
  std::istringstream in(text);
  std::string field[7];
  for (std::string& f : field) std::getline(in, f, '|');
  const auto number = [](const std::string& s) {
    return static_cast<uint32_t>(std::strtoul(s.c_str(), nullptr, 0));
  };
  return {field[0],         field[3],         field[4],        number(field[1]),
          number(field[2]), number(field[5]), number(field[6])};
}

int32_t create_instance(const vk::InstanceCreateInfo*, const void*, vk::Instance* instance) {
  int32_t rc = vk::kSuccess;
  const char* script = std::getenv("STUB_VULKAN");
  std::ifstream in(script ? script : "");
  for (std::string line; std::getline(in, line);) {
    const std::string word = line.substr(0, line.find(' '));
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word == "create") rc = std::atoi(rest.c_str());
    if (word == "stderr") std::fprintf(stderr, "%s\n", rest.c_str());
    if (word == "crash") std::raise(SIGSEGV);
    if (word == "hang") pause();
    if (word == "device") devices().push_back(parse(rest));
  }
  *instance = &devices();
  return rc;
}

int32_t enumerate_devices(vk::Instance, uint32_t* count, vk::PhysicalDevice* out) {
  if (out)
    for (size_t i = 0; i < *count; ++i) out[i] = &devices()[i];
  *count = static_cast<uint32_t>(devices().size());
  return vk::kSuccess;
}

void get_properties2(vk::PhysicalDevice handle, vk::Properties2* out) {
  const auto* device = static_cast<const Device*>(handle);
  vk::Properties& p = out->properties;
  p.api_version = vk::kVersion11;
  p.vendor_id = device->vendor;
  p.device_type = device->type;
  std::strncpy(p.device_name, device->name.c_str(), sizeof p.device_name - 1);
  auto* driver = static_cast<vk::DriverProperties*>(out->next);
  if (!driver || driver->type != vk::kTypeDriverProperties) return;
  driver->driver_id = device->driver;
  driver->conformance[0] = static_cast<uint8_t>(device->conformance);
  std::strncpy(driver->driver_name, device->driver_name.c_str(), sizeof driver->driver_name - 1);
  std::strncpy(driver->driver_info, device->driver_info.c_str(), sizeof driver->driver_info - 1);
}

}  // namespace

extern "C" void* vkGetInstanceProcAddr(vk::Instance, const char* name) {
  const std::string wanted = name;
  if (wanted == "vkCreateInstance") return reinterpret_cast<void*>(create_instance);
  if (wanted == "vkEnumeratePhysicalDevices") return reinterpret_cast<void*>(enumerate_devices);
  if (wanted == "vkGetPhysicalDeviceProperties2") return reinterpret_cast<void*>(get_properties2);
  return nullptr;
}
