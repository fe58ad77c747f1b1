#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/facts.h"
#include "doctor/finding.h"
#include "doctor/system.h"

namespace weft::doctor {

/// One check: from what is known about the machine to at most one finding. Checks touch no driver; whatever a
/// driver did (crash, hang) has become data in Facts.
using CheckFunction = std::optional<Finding> (*)(const System&, const Facts&);

struct Check {
  int row;  ///< of the table in docs/doctor.md; 0 = not in it
  const char* id;
  const char* title;
  CheckFunction function;
};

const std::vector<Check>& all_checks();

/// Runs every check; an exception in one becomes a finding of its own.
std::vector<Finding> run_checks(const System& system, const Facts& facts,
                                const std::vector<Check>& checks = all_checks());

// checks_vulkan.cpp
std::optional<Finding> check_vulkan_loader(const System&, const Facts&);
std::optional<Finding> check_vulkan_driver(const System&, const Facts&);
std::optional<Finding> check_driver_override(const System&, const Facts&);
std::optional<Finding> check_driver_library(const System&, const Facts&);
std::optional<Finding> check_vulkan_crash(const System&, const Facts&);
// checks_device.cpp
std::optional<Finding> check_software_only(const System&, const Facts&);
std::optional<Finding> check_render_permission(const System&, const Facts&);
// checks_wsl.cpp
std::optional<Finding> check_wsl_dozen(const System&, const Facts&);
std::optional<Finding> check_wsl_dxg(const System&, const Facts&);
std::optional<Finding> check_dozen_hidden(const System&, const Facts&);
std::optional<Finding> check_dozen_crash(const System&, const Facts&);
// checks_snapdragon.cpp
std::optional<Finding> check_snapdragon_turnip(const System&, const Facts&);
std::optional<Finding> check_snapdragon_firmware(const System&, const Facts&);
std::optional<Finding> check_kgsl(const System&, const Facts&);
// checks_nvidia.cpp
std::optional<Finding> check_nvidia_manifest(const System&, const Facts&);
std::optional<Finding> check_nvidia_libraries(const System&, const Facts&);
// checks_webgpu.cpp
std::optional<Finding> check_webgpu_library(const System&, const Facts&);
std::optional<Finding> check_webgpu_class(const System&, const Facts&);
std::optional<Finding> check_webgpu_failed(const System&, const Facts&);
// checks_other.cpp
std::optional<Finding> check_opencl(const System&, const Facts&);
std::optional<Finding> check_harmless_messages(const System&, const Facts&);

/// Id of the finding that says why a GPU is not in use, when one of the special rows knows.
std::optional<std::string> explained_by(const System&, const Facts&);
/// Dozen is in play: WSL, its manifest or its device. Crashes then have a known cause.
bool uses_dozen(const Facts& facts);

}  // namespace weft::doctor
