#include "doctor/vulkan.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/child.h"
#include "doctor/vulkan_abi.h"

namespace weft::doctor {
namespace {

using nlohmann::json;
constexpr const char* kLoader = "libvulkan.so.1";

/// The strings of a driver are fixed arrays; do not trust them to end.
template <size_t N>
std::string text_of(const char (&chars)[N]) {
  return {chars, std::find(chars, chars + N, '\0')};
}

json describe(vk::PhysicalDevice device, vk::GetProperties2 get2, vk::GetProperties get) {
  vk::DriverProperties driver;
  vk::Properties2 all;
  if (get2) {
    all.next = &driver;
    get2(device, &all);
  } else {
    get(device, &all.properties);
  }
  const vk::Properties& p = all.properties;
  return {{"name", text_of(p.device_name)},
          {"type", p.device_type},
          {"vendor_id", p.vendor_id},
          {"device_id", p.device_id},
          {"api_version", p.api_version},
          {"driver_id", driver.driver_id},
          {"driver_name", text_of(driver.driver_name)},
          {"driver_info", text_of(driver.driver_info)},
          {"conformance",
           {driver.conformance[0], driver.conformance[1], driver.conformance[2], driver.conformance[3]}}};
}

/// Runs in the child. The instance is not destroyed: the process ends here anyway, and drivers hang at exit.
json talk_to_vulkan(const System& system) {
  system.enter();
  setenv("VK_LOADER_DEBUG", "error,warn",
         0);  // the loader's own words, e.g. which JSON file it could not open
  json answer = {{"loader_found", false}};
  std::string error;
  void* library = system.load(kLoader, error);
  if (!library) {
    answer["loader_error"] = error;
    return answer;
  }
  auto get = reinterpret_cast<vk::GetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  auto create = get ? reinterpret_cast<vk::CreateInstance>(get(nullptr, "vkCreateInstance")) : nullptr;
  if (!create) {
    answer["loader_error"] = std::string(kLoader) + " has no vkCreateInstance";
    return answer;
  }
  answer["loader_found"] = true;

  const vk::ApplicationInfo application{.application = "weft doctor"};
  const vk::InstanceCreateInfo info{.application = &application};
  vk::Instance instance = nullptr;
  int32_t rc = create(&info, nullptr, &instance);
  answer["create_rc"] = rc;
  if (rc != vk::kSuccess) return answer;

  auto enumerate =
      reinterpret_cast<vk::EnumeratePhysicalDevices>(get(instance, "vkEnumeratePhysicalDevices"));
  auto properties2 = reinterpret_cast<vk::GetProperties2>(get(instance, "vkGetPhysicalDeviceProperties2"));
  auto properties = reinterpret_cast<vk::GetProperties>(get(instance, "vkGetPhysicalDeviceProperties"));
  uint32_t count = 0;
  answer["devices"] = json::array();
  if (!enumerate || (!properties && !properties2)) return answer;
  rc = enumerate(instance, &count, nullptr);
  std::vector<vk::PhysicalDevice> devices(count);
  if (rc == vk::kSuccess && count) rc = enumerate(instance, &count, devices.data());
  if (rc != vk::kSuccess && rc != vk::kIncomplete) {
    // The loader reports "no device" here when drivers exist but none of them finds its hardware.
    answer["enumerate_rc"] = rc;
    return answer;
  }
  devices.resize(count);
  for (vk::PhysicalDevice device : devices)
    answer["devices"].push_back(describe(device, properties2, properties));
  return answer;
}

VulkanDevice read_device(const json& j) {
  VulkanDevice d;
  d.name = j.at("name");
  d.driver_name = j.at("driver_name");
  d.driver_info = j.at("driver_info");
  d.type = j.at("type");
  d.vendor_id = j.at("vendor_id");
  d.device_id = j.at("device_id");
  d.api_version = j.at("api_version");
  d.driver = static_cast<DriverId>(j.at("driver_id").get<uint32_t>());
  d.conformance = j.at("conformance").get<std::vector<uint32_t>>();
  return d;
}

}  // namespace

const char* device_type_name(uint32_t type) {
  switch (type) {
    case 1:
      return "integrated GPU";
    case 2:
      return "discrete GPU";
    case 3:
      return "virtual GPU";
    case 4:
      return "CPU";
    default:
      return "other";
  }
}

std::string version_text(uint32_t v) {
  return fmt::format("{}.{}.{}", (v >> 22) & 0x7F, (v >> 12) & 0x3FF, v & 0xFFF);
}

bool Vulkan::has(DriverId id) const {
  return std::any_of(devices.begin(), devices.end(), [&](const VulkanDevice& d) { return d.driver == id; });
}

bool Vulkan::only_software() const {
  return !devices.empty() &&
         std::all_of(devices.begin(), devices.end(), [](const auto& d) { return d.is_cpu(); });
}

Vulkan probe_vulkan(const System& system) {
  Vulkan result;
  const LibraryLoad loader = system.try_load(kLoader);
  result.loader_found = loader.loads;
  result.loader_error = loader.error;
  if (!loader.loads) return result;
  const ChildResult child = run_in_child(
      [&] { return talk_to_vulkan(system).dump(-1, ' ', false, json::error_handler_t::replace); },
      system.deadline);
  result.errors = child.errors;
  if (!child.done()) {
    result.failure = child.reason;
    result.timed_out = child.end == ChildResult::End::timed_out;
    return result;
  }
  const json answer = json::parse(child.output);
  result.loader_found = answer.at("loader_found");
  result.loader_error = answer.value("loader_error", "");
  result.create_rc = answer.value("create_rc", 0);
  if (answer.contains("enumerate_rc")) result.create_rc = answer["enumerate_rc"];
  for (const json& device : answer.value("devices", json::array()))
    result.devices.push_back(read_device(device));
  return result;
}

}  // namespace weft::doctor
