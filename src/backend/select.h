#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gpu/report.h"

/// Which devices there are, and which one to use.
namespace weft {

/// One device of the list: the CPU backend, or an adapter through a library.
struct DeviceEntry {
  std::string id;              ///< "cpu", "webgpu:0", "webgpu:1" ...: what --device takes
  std::string name;            ///< of the processor or adapter
  int index = -1;              ///< N of webgpu:N
  int twin = 0;                ///< how many adapters that look the same the library lists before this one
  gpu::LibraryReport library;  ///< without its adapters; empty for the CPU
  gpu::AdapterReport adapter;

  bool is_cpu() const { return id == "cpu"; }
};

/// Usable adapters, best first (discrete, integrated, others, software; then in the order of the libraries),
/// then the CPU backend.
std::vector<DeviceEntry> list_devices(const std::vector<gpu::LibraryReport>& libraries);

/// A device and one sentence why.
struct DeviceChoice {
  DeviceEntry device;
  std::string reason;
};

/// `wanted`: auto, cpu, webgpu, webgpu:N, webgpu:NAME (part of the adapter's, driver's or library's name), in
/// any case. Throws ErrorKind::invalid, with the list of devices, when there is no such device.
DeviceChoice choose_device(const std::string& wanted, const std::vector<DeviceEntry>& devices);

/// What `option` (--device), then WEFT_DEVICE, then DEVICE ask for; "auto" when none does. `source` tells
/// which one spoke.
struct DeviceWish {
  std::string value = "auto";
  std::string source = "default";
};
DeviceWish device_wish(const std::string& option = {});

/// Opens a device of the list. Throws ErrorKind::unsupported when it is not there any more.
std::unique_ptr<Backend> open_device(const DeviceEntry& device);

}  // namespace weft
