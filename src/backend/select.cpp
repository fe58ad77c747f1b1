#include "backend/select.h"

#include <algorithm>
#include <cctype>

#include "backend/cpu/cpu_backend.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "gpu/adapter.h"
#include "gpu/truth.h"

namespace weft {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Software adapters come after everything else, and "unknown" (some drivers say no more) after known GPUs.
int rank(gpu::AdapterType type) {
  switch (type) {
    case gpu::AdapterType::discrete:
      return 0;
    case gpu::AdapterType::integrated:
      return 1;
    case gpu::AdapterType::unknown:
      return 2;
    case gpu::AdapterType::cpu:
      break;
  }
  return 3;
}

/// Two cards of one model differ in nothing that a library tells.
bool look_the_same(const gpu::AdapterReport& a, const gpu::AdapterReport& b) {
  return a.name == b.name && a.device_id == b.device_id && a.backend == b.backend;
}

bool is_software(const DeviceEntry& device) {
  return device.adapter.type == gpu::AdapterType::cpu;
}

bool matches(const DeviceEntry& device, const std::string& word) {
  return std::ranges::any_of(
      std::initializer_list<std::string>{device.name, device.adapter.driver, device.library.implementation},
      [&](const std::string& text) { return lower(text).find(word) != std::string::npos; });
}

[[noreturn]] void no_such_device(const std::string& wanted, const std::vector<DeviceEntry>& devices) {
  std::string list;
  for (const DeviceEntry& d : devices)
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", d.id, d.name);
  fail(ErrorKind::invalid, "[device] no device '{}'; there are: {}. Or: auto, webgpu, webgpu:NAME", wanted,
       list);
}

DeviceChoice choose_auto(const std::vector<DeviceEntry>& devices) {
  const DeviceEntry& best = devices.front();
  const auto cpu = std::ranges::find_if(devices, &DeviceEntry::is_cpu);
  if (best.is_cpu()) return {*cpu, "no WebGPU adapter can be used"};
  if (is_software(best))
    return {*cpu, "the only WebGPU adapters are software, and the CPU backend is faster than they are"};
  return {best, fmt::format("it is the best GPU here ({})", gpu::to_string(best.adapter.type))};
}

}  // namespace

std::vector<DeviceEntry> list_devices(const std::vector<gpu::LibraryReport>& libraries) {
  std::vector<DeviceEntry> devices;
  for (const gpu::LibraryReport& library : libraries)
    for (const gpu::AdapterReport& adapter : library.adapters) {
      if (!adapter.usable()) continue;
      DeviceEntry entry{.name = adapter.name, .library = library, .adapter = adapter};
      for (const gpu::AdapterReport* other = library.adapters.data(); other != &adapter; ++other)
        if (look_the_same(*other, adapter)) ++entry.twin;
      entry.library.adapters.clear();
      devices.push_back(std::move(entry));
    }
  std::ranges::stable_sort(devices, {}, [](const DeviceEntry& d) { return rank(d.adapter.type); });
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].index = static_cast<int>(i);
    devices[i].id = fmt::format("webgpu:{}", i);
  }
  devices.push_back({.id = "cpu", .name = cpu_name()});
  return devices;
}

DeviceChoice choose_device(const std::string& wanted, const std::vector<DeviceEntry>& devices) {
  const std::string word = lower(wanted);
  if (word == "auto") return choose_auto(devices);
  if (word == "cpu") return {*std::ranges::find_if(devices, &DeviceEntry::is_cpu), "it was asked for"};
  if (word == "webgpu" && !devices.front().is_cpu())
    return {devices.front(), "it is the best WebGPU adapter"};
  if (!word.starts_with("webgpu:")) no_such_device(wanted, devices);
  const std::string which = word.substr(7);
  const bool number =
      !which.empty() && std::ranges::all_of(which, [](unsigned char c) { return std::isdigit(c); });
  for (const DeviceEntry& device : devices) {
    if (device.is_cpu()) continue;
    if (number ? device.id == word : !which.empty() && matches(device, which))
      return {device, number ? "it was asked for" : fmt::format("its name matches '{}'", which)};
  }
  no_such_device(wanted, devices);
}

DeviceWish device_wish(const std::string& option) {
  if (!option.empty()) return {option, "--device"};
  for (const char* name : {"WEFT_DEVICE", "DEVICE"})
    if (auto value = env::get(name)) return {*value, name};
  return {};
}

std::unique_ptr<Backend> open_device(const DeviceEntry& device) {
  if (device.is_cpu()) return std::make_unique<CpuBackend>();
  const gpu::Library library = gpu::Library::open(device.library.path);
  int twins = 0;
  for (const gpu::Adapter& adapter : library.adapters()) {
    if (!look_the_same(adapter.info(), device.adapter) || twins++ < device.twin) continue;
    return std::make_unique<WebgpuBackend>(
        gpu::Device::create(adapter, gpu::enabled_features(device.adapter.features)));
  }
  fail(ErrorKind::unsupported, "[device] {} ({}) is not there any more; `weft devices` lists what is",
       device.id, device.name);
}

}  // namespace weft
