#pragma once

#include <cstddef>
#include <cstdint>

/// The few Vulkan declarations the doctor needs, written down here because it must build on machines without
/// Vulkan's headers. Layouts and numbers: the Vulkan 1.3 specification, 64-bit pointers.
namespace weft::doctor::vk {

constexpr int32_t kSuccess = 0;
constexpr int32_t kIncomplete = 5;
constexpr int32_t kInitializationFailed = -3;
constexpr int32_t kIncompatibleDriver = -9;

constexpr uint32_t kTypeApplicationInfo = 0;
constexpr uint32_t kTypeInstanceCreateInfo = 1;
constexpr uint32_t kTypeProperties2 = 1000059001;
constexpr uint32_t kTypeDriverProperties = 1000196000;

constexpr uint32_t kVersion11 = (1U << 22) | (1U << 12);

struct ApplicationInfo {
  uint32_t type = kTypeApplicationInfo;
  const void* next = nullptr;
  const char* application = nullptr;
  uint32_t application_version = 0;
  const char* engine = nullptr;
  uint32_t engine_version = 0;
  uint32_t api_version = kVersion11;
};

struct InstanceCreateInfo {
  uint32_t type = kTypeInstanceCreateInfo;
  const void* next = nullptr;
  uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};

struct Properties {
  uint32_t api_version, driver_version, vendor_id, device_id, device_type;
  char device_name[256];
  uint8_t cache_uuid[16];
  alignas(8) uint8_t
      limits_and_sparse[528];  // VkPhysicalDeviceLimits (504) and SparseProperties (20), padded
};
static_assert(sizeof(Properties) == 824);

struct Properties2 {
  uint32_t type = kTypeProperties2;
  void* next = nullptr;
  Properties properties{};
};
static_assert(offsetof(Properties2, properties) == 16);

struct DriverProperties {
  uint32_t type = kTypeDriverProperties;
  void* next = nullptr;
  uint32_t driver_id = 0;
  char driver_name[256]{};
  char driver_info[256]{};
  uint8_t conformance[4]{};  // major, minor, subminor, patch
};
static_assert(offsetof(DriverProperties, driver_id) == 16 && sizeof(DriverProperties) == 536);

using Instance = void*;
using PhysicalDevice = void*;
using GetInstanceProcAddr = void* (*)(Instance, const char*);
using CreateInstance = int32_t (*)(const InstanceCreateInfo*, const void*, Instance*);
using EnumeratePhysicalDevices = int32_t (*)(Instance, uint32_t*, PhysicalDevice*);
using GetProperties = void (*)(PhysicalDevice, Properties*);
using GetProperties2 = void (*)(PhysicalDevice, Properties2*);

}  // namespace weft::doctor::vk
