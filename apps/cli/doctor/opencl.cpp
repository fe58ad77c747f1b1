#include "doctor/opencl.h"

#include <dlfcn.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/child.h"

namespace weft::doctor {
namespace {

using nlohmann::json;
using GetPlatforms = int32_t (*)(uint32_t, void**, uint32_t*);
using GetDevices = int32_t (*)(void*, uint64_t, uint32_t, void**, uint32_t*);
constexpr uint64_t kAllDeviceTypes = 0xFFFFFFFF;
constexpr uint32_t kMostPlatforms = 16;

json talk_to_opencl(const System& system) {
  system.enter();
  std::string error;
  void* library = system.load("libOpenCL.so.1", error);
  auto platforms = library ? reinterpret_cast<GetPlatforms>(dlsym(library, "clGetPlatformIDs")) : nullptr;
  auto devices = library ? reinterpret_cast<GetDevices>(dlsym(library, "clGetDeviceIDs")) : nullptr;
  if (!platforms || !devices) return {{"loader_found", false}};
  void* ids[kMostPlatforms] = {};
  uint32_t count = 0, total = 0;
  const int32_t rc = platforms(kMostPlatforms, ids, &count);
  if (rc != 0) count = 0;
  for (uint32_t i = 0; i < count && i < kMostPlatforms; ++i) {
    uint32_t n = 0;  // Rusticl answers CL_DEVICE_NOT_FOUND until RUSTICL_ENABLE names a driver
    if (devices(ids[i], kAllDeviceTypes, 0, nullptr, &n) == 0) total += n;
  }
  return {{"loader_found", true}, {"rc", rc}, {"platforms", count}, {"devices", total}};
}

}  // namespace

OpenCl probe_opencl(const System& system) {
  OpenCl result;
  for (const std::string& name : system.list("/etc/OpenCL/vendors"))
    if (name.ends_with(".icd")) result.vendors.push_back(name);
  const ChildResult child = run_in_child([&] { return talk_to_opencl(system).dump(); }, system.deadline);
  if (!child.done()) {
    result.loader_found = true;
    result.failure = child.reason;
    return result;
  }
  const json answer = json::parse(child.output);
  result.loader_found = answer.at("loader_found");
  result.rc = answer.value("rc", 0);
  result.platforms = answer.value("platforms", 0);
  result.devices = answer.value("devices", 0);
  return result;
}

}  // namespace weft::doctor
