#include "doctor/checks.h"

#include <fmt/format.h>

#include <exception>

namespace weft::doctor {

const char* to_string(Severity severity) {
  switch (severity) {
    case Severity::ok:
      return "ok";
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "?";
}

const std::vector<Check>& all_checks() {
  static const std::vector<Check> checks = {
      {1, "vulkan-loader", "The Vulkan loader is installed", check_vulkan_loader},
      {2, "vulkan-driver", "A Vulkan driver is installed", check_vulkan_driver},
      {3, "driver-override", "VK_DRIVER_FILES and its relatives name good drivers", check_driver_override},
      {4, "software-only", "A driver for hardware is active", check_software_only},
      {5, "render-permission", "The GPU's device nodes may be opened", check_render_permission},
      {6, "wsl-dozen", "WSL2 has the Dozen driver", check_wsl_dozen},
      {7, "wsl-dxg", "WSL2 hands over the GPU", check_wsl_dxg},
      {8, "dozen-hidden", "The WebGPU library shows Dozen", check_dozen_hidden},
      {9, "dozen-crash", "Dozen answers", check_dozen_crash},
      {10, "snapdragon-turnip", "Snapdragon X has Turnip", check_snapdragon_turnip},
      {11, "snapdragon-firmware", "Snapdragon X has its GPU firmware", check_snapdragon_firmware},
      {12, "kgsl", "KGSL", check_kgsl},
      {13, "nvidia-manifest", "NVIDIA's manifest names a library that loads", check_nvidia_manifest},
      {14, "nvidia-libraries", "NVIDIA's graphics libraries are there", check_nvidia_libraries},
      {15, "opencl", "OpenCL has a device", check_opencl},
      {16, "webgpu-library", "A WebGPU library loads", check_webgpu_library},
      {17, "webgpu-class", "The WebGPU library speaks a known interface", check_webgpu_class},
      {18, "harmless-messages", "Messages that look worse than they are", check_harmless_messages},
      {0, "driver-library", "Every manifest's driver loads", check_driver_library},
      {0, "vulkan-crash", "Vulkan answers", check_vulkan_crash},
      {0, "webgpu-failed", "Every WebGPU library answers", check_webgpu_failed},
  };
  return checks;
}

std::vector<Finding> run_checks(const System& system, const Facts& facts, const std::vector<Check>& checks) {
  std::vector<Finding> findings;
  findings.reserve(facts.problems.size());
  for (const std::string& problem : facts.problems)
    findings.push_back(
        {.id = "probe-failed",
         .severity = Severity::warning,
         .title = "A part of the examination failed",
         .detail = problem,
         .fix = "Please report this as a fault of weft doctor, with the output of weft doctor --json."});
  for (const Check& check : checks) {
    try {
      if (std::optional<Finding> finding = check.function(system, facts)) {
        finding->id = check.id;
        findings.push_back(std::move(*finding));
      }
    } catch (const std::exception& e) {
      findings.push_back({.id = check.id,
                          .severity = Severity::warning,
                          .title = fmt::format("The check \"{}\" failed", check.title),
                          .detail = e.what(),
                          .fix = "Please report this as a fault of weft doctor."});
    }
  }
  return findings;
}

}  // namespace weft::doctor
