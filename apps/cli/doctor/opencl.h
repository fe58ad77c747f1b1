#pragma once

#include <string>
#include <vector>

#include "doctor/system.h"

namespace weft::doctor {

/// OpenCL is optional for weft; the doctor only says whether there would be a device.
struct OpenCl {
  bool loader_found = false;
  int rc = 0;  ///< of clGetPlatformIDs; -1001 = no platform
  int platforms = 0, devices = 0;
  std::vector<std::string> vendors;  ///< names in /etc/OpenCL/vendors
  std::string failure;               ///< the probe crashed or hung
};

OpenCl probe_opencl(const System& system);

}  // namespace weft::doctor
