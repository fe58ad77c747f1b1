#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks.h"

/// Windows Subsystem for Linux and its Vulkan driver Dozen (Vulkan on Direct3D 12): rows 6 to 9.
namespace weft::doctor {
namespace {

bool is_wgpu(const gpu::LibraryReport& library) {
  return mentions(library.implementation, "wgpu");
}

bool is_dozen(const gpu::AdapterReport& adapter) {
  return mentions(adapter.name, "Direct3D12") || mentions(adapter.driver, "dozen") ||
         mentions(adapter.driver, "dzn");
}

/// Windows puts its driver's Linux libraries there; NVIDIA's bring CUDA along.
bool nvidia_on_wsl(const System& s) {
  return s.exists("/usr/lib/wsl/lib/libcuda.so.1") || s.exists("/usr/lib/wsl/lib/nvidia-smi");
}

/// What the fix calls the manifest, which Mesa names after the architecture.
std::string dozen_manifest(const System& s) {
  return fmt::format("/usr/share/vulkan/icd.d/dzn_icd.{}.json", s.arch);
}

}  // namespace

bool uses_dozen(const Facts& f) {
  return f.vulkan.has(DriverId::dozen) || f.manifest("dzn_icd") != nullptr;
}

std::optional<Finding> check_wsl_dozen(const System& s, const Facts& f) {
  if (f.platform.wsl == Wsl::no || !s.exists("/dev/dxg") || uses_dozen(f)) return std::nullopt;
  Finding finding{
      .severity = Severity::error,
      .title = "WSL2 has a GPU but no Vulkan driver for it (Dozen)",
      .detail = fmt::format("/dev/dxg is there, no manifest dzn_icd*.json; active: {}. /dev/dri is not"
                            " expected on WSL2.",
                            f.vulkan.devices.empty() ? "nothing" : f.vulkan.devices.front().name)};
  const std::string build = "build Mesa with -Dvulkan-drivers=microsoft-experimental,swrast";
  const std::string& manager = f.platform.package_manager;
  if (f.platform.id == "ubuntu")
    finding.fix = fmt::format(
        "Ubuntu's Mesa does not ship Dozen. sudo add-apt-repository ppa:kisak/kisak-mesa && sudo"
        " apt update && sudo apt install mesa-vulkan-drivers (it has libvulkan_dzn.so); or {}.",
        build);
  else if (manager == "apt")
    finding.fix =
        fmt::format("Debian's Mesa does not ship Dozen: {}. (On Ubuntu ppa:kisak/kisak-mesa has it.)", build);
  else if (manager == "pacman")
    finding.fix = fmt::format("{}pacman -S vulkan-dzn; or {}.", s.uid == 0 ? "" : "sudo ", build);
  else
    finding.fix = fmt::format("Install a Mesa that ships Dozen (libvulkan_dzn.so); or {}.", build);
  finding.fix +=
      fmt::format("\nThen export VK_DRIVER_FILES={} and LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
                  dozen_manifest(s));
  return finding;
}

std::optional<Finding> check_wsl_dxg(const System& s, const Facts& f) {
  if (f.platform.wsl == Wsl::no) return std::nullopt;
  std::vector<std::string> missing;
  for (const char* path : {"/dev/dxg", "/usr/lib/wsl/lib/libd3d12.so", "/usr/lib/wsl/lib/libdxcore.so"})
    if (!s.exists(path)) missing.emplace_back(path);
  if (missing.empty()) return std::nullopt;
  Finding finding{.severity = Severity::error,
                  .title = "WSL does not hand over the GPU",
                  .detail = fmt::format("missing: {}; kernel {}", join(missing, ", "), f.platform.kernel)};
  const Container container = f.platform.container;
  if (f.platform.wsl == Wsl::one)
    finding.fix =
        "This is WSL 1, which has no GPU. In PowerShell: wsl --set-version DISTRO 2; wsl --update; wsl"
        " --shutdown";
  else if (container != Container::none)
    finding.fix = fmt::format(
        "Start the container with: {} --device /dev/dxg -v /usr/lib/wsl:/usr/lib/wsl -e"
        " LD_LIBRARY_PATH=/usr/lib/wsl/lib …  (on the Windows side: wsl --update; wsl --shutdown)",
        container == Container::podman ? "podman run" : "docker run");
  else
    finding.fix =
        "In PowerShell: wsl --update; wsl --shutdown. Update the Windows GPU driver. Check with wsl -l -v "
        "that"
        " the distribution is WSL 2, not 1.";
  return finding;
}

std::optional<Finding> check_dozen_hidden(const System&, const Facts& f) {
  const auto dozen = std::find_if(
      f.vulkan.devices.begin(), f.vulkan.devices.end(),
      [](const VulkanDevice& d) { return d.driver == DriverId::dozen && d.conformance[0] == 0; });
  if (dozen == f.vulkan.devices.end()) return std::nullopt;
  std::vector<std::string> hiding;
  bool shown = false;
  for (const gpu::LibraryReport& library : f.libraries) {
    if (!library.usable()) continue;
    const bool shows = std::any_of(library.adapters.begin(), library.adapters.end(), is_dozen);
    shown = shown || shows;
    if (!shows && is_wgpu(library))
      hiding.push_back(fmt::format("{} {} ({})", library.implementation, library.version, library.path));
  }
  if (hiding.empty()) return std::nullopt;
  return Finding{
      .severity = shown ? Severity::info : Severity::warning,
      .title = "The WebGPU library hides the GPU's driver",
      .detail = fmt::format("Vulkan has {}, which has passed no conformance test; {} does not list it.",
                            dozen->name, join(hiding, ", ")),
      .fix =
          "wgpu-native up to 27 hides drivers without a conformance version and has no switch for it: use "
          "wgpu-native"
          " 29 or later (weft sets the flag), or Dawn, or a patched build, through WEFT_WEBGPU_LIB."};
}

std::optional<Finding> check_dozen_crash(const System& s, const Facts& f) {
  if (!uses_dozen(f)) return std::nullopt;
  std::vector<std::string> seen;
  if (!f.vulkan.failure.empty()) seen.push_back("Vulkan: " + f.vulkan.failure);
  for (const gpu::LibraryReport& library : f.libraries) {
    if (library.status == gpu::LibraryStatus::crashed || library.status == gpu::LibraryStatus::timed_out)
      seen.push_back(fmt::format("{}: {}", library.path, library.message));
    for (const gpu::AdapterReport& adapter : library.adapters)
      if (is_dozen(adapter) && !adapter.usable())
        seen.push_back(fmt::format("{} through {}: {}", adapter.name, library.path, adapter.error));
  }
  if (seen.empty()) return std::nullopt;
  Finding finding{.severity = Severity::error,
                  .title = "Dozen crashes or does not answer",
                  .detail = join(seen, "\n"),
                  .fix = "In PowerShell: wsl --shutdown, then retry."};
  if (nvidia_on_wsl(s))
    finding.fix +=
        " On NVIDIA under WSL Dozen is known to crash in libnvwgf2umx (wslg issue 1492): use CUDA or the CPU"
        " (WEFT_DEVICE=cpu).";
  else
    finding.fix += " If it stays, use the CPU (WEFT_DEVICE=cpu); on NVIDIA, CUDA.";
  finding.fix +=
      " Lines like \"dzn is not a conformant Vulkan implementation\" and \"ZINK requires\" are harmless.";
  return finding;
}

}  // namespace weft::doctor
