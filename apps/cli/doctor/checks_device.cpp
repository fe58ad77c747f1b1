#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "doctor/checks.h"

/// Is there a GPU, and may this user have it: rows 4 and 5.
namespace weft::doctor {
namespace {

const char* run_command(Container container) {
  return container == Container::podman ? "podman run" : "docker run";
}

/// AMD and Intel need a render node; without one there is nothing for a user-space driver to open.
std::string missing_node_fix(const System& s, const Facts& f) {
  if (f.platform.container == Container::kubernetes)
    return "The pod has no /dev/dri: request the GPU from the vendor's device plugin (e.g. amd.com/gpu: 1,"
           " gpu.intel.com/i915: 1).";
  if (f.platform.container != Container::none)
    return fmt::format("The container has no /dev/dri: start it with {} --device /dev/dri …",
                       run_command(f.platform.container));
  return fmt::format(
      "There is no /dev/dri/renderD*: the kernel driver is not loaded. Try {}modprobe {}, and look"
      " for errors in dmesg.",
      s.uid == 0 ? "" : "sudo ", f.has_gpu(GpuKind::amd) ? "amdgpu" : "i915");
}

bool has_render_node(const Facts& f) {
  return std::any_of(f.nodes.begin(), f.nodes.end(),
                     [](const DeviceNode& n) { return contains(n.path, "renderD"); });
}

}  // namespace

std::optional<std::string> explained_by(const System& s, const Facts& f) {
  static const std::vector<std::pair<const char*, CheckFunction>> candidates = {
      {"render-permission", check_render_permission},
      {"wsl-dxg", check_wsl_dxg},
      {"wsl-dozen", check_wsl_dozen},
      {"snapdragon-turnip", check_snapdragon_turnip},
      {"snapdragon-firmware", check_snapdragon_firmware},
      {"nvidia-libraries", check_nvidia_libraries},
      {"nvidia-manifest", check_nvidia_manifest},
      {"driver-override", check_driver_override},
      {"driver-library", check_driver_library},
  };
  for (const auto& [id, check] : candidates)
    if (check(s, f)) return id;
  return std::nullopt;
}

std::optional<Finding> check_software_only(const System& s, const Facts& f) {
  if (!f.vulkan.only_software()) return std::nullopt;
  const std::string device = f.vulkan.devices.front().name;
  if (f.gpus.empty())
    return Finding{
        .severity = Severity::info,
        .title = "Only the software driver is active, and no GPU was found",
        .detail = device,
        .fix =
            "Nothing to do on a machine without a GPU; the CPU adapter is 10-100x slower than one. In a"
            " virtual machine or container, hand the GPU over to it."};
  std::vector<std::string> present;
  present.reserve(f.gpus.size());
  for (const Gpu& gpu : f.gpus) present.push_back(fmt::format("{} ({})", gpu.name, gpu.where));
  Finding finding{
      .severity = Severity::warning,
      .title = "Only the software driver is active although a GPU is present",
      .detail = fmt::format("active: {}; present: {}. Continuing on the CPU adapter is 10-100x slower.",
                            device, join(present, ", "))};
  const bool needs_node = f.has_gpu(GpuKind::amd) || f.has_gpu(GpuKind::intel);
  if (const std::optional<std::string> id = explained_by(s, f))
    finding.fix = fmt::format("The reason is the finding `{}`: follow its fix.", *id);
  else if (needs_node && !has_render_node(f))
    finding.fix = missing_node_fix(s, f);
  else if (f.has_gpu(GpuKind::nvidia) && !f.nvidia.looked)
    finding.fix =
        f.platform.container == Container::none
            ? "There is no /dev/nvidiactl: NVIDIA's kernel driver is not loaded. Install the driver (and"
              " reboot), then check with nvidia-smi."
            : fmt::format(
                  "The container has no /dev/nvidiactl: start it with {} --gpus all -e"
                  " NVIDIA_DRIVER_CAPABILITIES=all …",
                  run_command(f.platform.container));
  else
    finding.fix = fmt::format("The driver manifest of {} is not installed or not readable: {}",
                              f.gpus.front().name, install_command(s, f.platform, Package::mesa_vulkan));
  return finding;
}

std::optional<Finding> check_render_permission(const System& s, const Facts& f) {
  std::vector<std::string> lines, groups;
  std::vector<gid_t> gids;
  for (const DeviceNode& n : f.nodes) {
    if (n.error == 0) continue;
    const std::string group = s.group_name(n.node.gid);
    lines.push_back(fmt::format("{} (group {}, mode {:04o}): {}", n.path,
                                group.empty() ? std::to_string(n.node.gid) : group, n.node.mode,
                                std::strerror(n.error)));
    if (n.error != EACCES && n.error != EPERM) continue;
    if (std::find(gids.begin(), gids.end(), n.node.gid) == gids.end()) gids.push_back(n.node.gid);
    if (!group.empty() && group != "root" && std::find(groups.begin(), groups.end(), group) == groups.end())
      groups.push_back(group);
  }
  if (gids.empty()) return std::nullopt;
  const bool other_gpu = f.vulkan.works() && !f.vulkan.only_software();
  Finding finding{.severity = other_gpu ? Severity::warning : Severity::error,
                  .title = fmt::format("User {} may not open the GPU", s.user_name()),
                  .detail = join(lines, "\n")};
  const Container container = f.platform.container;
  if (container == Container::kubernetes) {
    std::vector<std::string> numbers;
    numbers.reserve(gids.size());
    for (gid_t gid : gids) numbers.push_back(std::to_string(gid));
    finding.fix = fmt::format(
        "Add the nodes' groups to the pod: securityContext: supplementalGroups: [{}], and get"
        " the device through the vendor's device plugin.",
        join(numbers, ", "));
  } else if (container != Container::none) {
    finding.fix = fmt::format("Start the container with: {} --device /dev/dri", run_command(container));
    for (gid_t gid : gids) finding.fix += fmt::format(" --group-add {}", gid);
    finding.fix += " …";
    if (container == Container::podman) finding.fix += " (rootless: --group-add keep-groups)";
  } else {
    for (const char* usual : {"render", "video"})  // other distributions' nodes belong to one of these two
      if (groups.empty() || groups.front() == "render" || groups.front() == "video")
        if (std::find(groups.begin(), groups.end(), usual) == groups.end()) groups.emplace_back(usual);
    finding.fix = fmt::format("sudo usermod -aG {} {}, then log out and in (or newgrp {}).",
                              join(groups, ","), s.user_name(), groups.front());
  }
  return finding;
}

}  // namespace weft::doctor
