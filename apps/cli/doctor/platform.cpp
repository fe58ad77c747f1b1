#include "doctor/platform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <utility>

namespace weft::doctor {
namespace {

// Firmware names: the kernel's drivers/gpu/drm/msm/adreno/a6xx_catalog.c.
constexpr std::array<Snapdragon, 3> kSnapdragons = {{
    {"qcom,x1e", "Adreno X1-85", 24, 2, "gen70500", "qcdxkmsuc8380.mbn"},
    {"qcom,x1p", "Adreno X1-45", 24, 2, "gen71500", "qcdxkmsucpurwa.mbn"},
    {"qcom,glymur", "Adreno X2-85", 26, 0, "gen80100", nullptr},
}};

/// NAME="value" lines.
std::map<std::string, std::string> assignments(const std::string& text) {
  std::map<std::string, std::string> values;
  for (const std::string& line : split(text, '\n')) {
    const size_t equal = line.find('=');
    if (equal == std::string::npos) continue;
    std::string value = line.substr(equal + 1);
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\''))
      value = value.substr(1, value.size() - 2);
    values[line.substr(0, equal)] = value;
  }
  return values;
}

std::string manager_of(const std::string& ids) {
  static const std::vector<std::pair<const char*, std::vector<const char*>>> families = {
      {"apt", {"debian", "ubuntu"}},
      {"dnf", {"fedora", "rhel", "centos"}},
      {"pacman", {"arch", "manjaro"}},
      {"zypper", {"suse", "opensuse", "sles"}},
      {"apk", {"alpine"}},
  };
  for (const auto& [manager, names] : families)
    for (const char* name : names)
      if (contains(ids, name)) return manager;
  return {};
}

Container find_container(const System& s) {
  if (!s.env("KUBERNETES_SERVICE_HOST").empty() || s.exists("/var/run/secrets/kubernetes.io"))
    return Container::kubernetes;
  if (s.exists("/run/.containerenv")) return Container::podman;
  if (s.exists("/.dockerenv")) return Container::docker;
  const std::string groups = s.read("/proc/1/cgroup").value_or("");
  if (contains(groups, "kubepods")) return Container::kubernetes;
  if (contains(groups, "libpod")) return Container::podman;
  if (contains(groups, "docker")) return Container::docker;
  if (contains(groups, "containerd") || contains(groups, "lxc")) return Container::other;
  const std::string variable = s.env("container");  // systemd's convention: set by the container manager
  if (variable == "podman") return Container::podman;
  if (variable == "docker") return Container::docker;
  return variable.empty() ? Container::none : Container::other;
}

/// The device tree's list of compatible names is separated by zero bytes.
const Snapdragon* find_snapdragon(const System& s) {
  const std::vector<std::string> names = split(s.read("/proc/device-tree/compatible").value_or(""), '\0');
  for (const Snapdragon& chip : kSnapdragons)
    for (const std::string& name : names)
      if (name.starts_with(chip.compatible)) return &chip;
  return nullptr;
}

/// Only vendors whose GPUs compute: servers have an ASPEED or Matrox chip for the console, virtual machines a
/// VGA stand-in, and neither is a GPU that somebody misses.
GpuKind pci_kind(unsigned vendor) {
  switch (vendor) {
    case 0x10de:
      return GpuKind::nvidia;
    case 0x1002:
      return GpuKind::amd;
    case 0x8086:
      return GpuKind::intel;
    case 0x5143:
      return GpuKind::qualcomm;
    default:
      return GpuKind::other;
  }
}

const char* vendor_name(GpuKind kind) {
  switch (kind) {
    case GpuKind::nvidia:
      return "NVIDIA";
    case GpuKind::amd:
      return "AMD";
    case GpuKind::intel:
      return "Intel";
    case GpuKind::qualcomm:
      return "Qualcomm";
    default:
      return "unknown";
  }
}

unsigned hex(const std::string& text) {
  return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 16));
}

/// Kernel drivers of GPUs that are not on a PCI bus.
bool is_soc_gpu_driver(const std::string& driver) {
  return driver == "panthor" || driver == "panfrost" || driver == "v3d" || driver == "asahi" ||
         driver == "powervr";
}

std::string render_driver(const System& s, const std::string& node) {
  return s.link_name("/sys/class/drm/" + node + "/device/driver");
}

}  // namespace

Platform find_platform(const System& s) {
  Platform p;
  std::string text = s.read("/etc/os-release").value_or("");
  if (text.empty()) text = s.read("/usr/lib/os-release").value_or("");
  std::map<std::string, std::string> release = assignments(text);
  p.distribution = release["PRETTY_NAME"].empty() ? release["NAME"] : release["PRETTY_NAME"];
  p.id = release["ID"];
  p.package_manager = manager_of(release["ID"] + " " + release["ID_LIKE"]);
  p.kernel = s.read_line("/proc/sys/kernel/osrelease");
  p.container = find_container(s);
  // WSL 1 says "4.4.0-19041-Microsoft", WSL 2 "5.15.90.1-microsoft-standard-WSL2".
  if (mentions(p.kernel, "microsoft"))
    p.wsl = mentions(p.kernel, "wsl2") || mentions(p.kernel, "microsoft-standard") ? Wsl::two : Wsl::one;
  p.snapdragon = find_snapdragon(s);
  return p;
}

const char* to_string(Container container) {
  switch (container) {
    case Container::none:
      return "none";
    case Container::docker:
      return "docker";
    case Container::podman:
      return "podman";
    case Container::kubernetes:
      return "kubernetes";
    case Container::other:
      return "container";
  }
  return "?";
}

std::vector<Gpu> find_gpus(const System& s, const Platform& platform) {
  std::vector<Gpu> gpus;
  const auto have = [&](GpuKind kind) {
    return std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& g) { return g.kind == kind; });
  };
  for (const std::string& slot : s.list("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + slot;
    if ((hex(s.read_line(folder + "/class")) >> 16) != 0x03) continue;  // 0x0300 VGA, 0x0302 3D, 0x0380 other
    const unsigned vendor = hex(s.read_line(folder + "/vendor"));
    const GpuKind kind = pci_kind(vendor);
    if (kind == GpuKind::other) continue;
    gpus.push_back(
        {kind,
         fmt::format("{} GPU {:04x}:{:04x}", vendor_name(kind), vendor, hex(s.read_line(folder + "/device"))),
         "PCI " + slot});
  }
  if (platform.snapdragon)
    gpus.push_back({GpuKind::qualcomm, fmt::format("Qualcomm {}", platform.snapdragon->gpu), "device tree"});
  if (s.exists("/dev/dxg")) gpus.push_back({GpuKind::wsl, "the GPU of the Windows host", "/dev/dxg"});
  // A sandbox can hide the PCI bus and still hand over the nodes.
  if (!have(GpuKind::nvidia) && s.exists("/dev/nvidiactl"))
    gpus.push_back({GpuKind::nvidia, "NVIDIA GPU", "/dev/nvidiactl"});
  for (const std::string& name : s.list("/sys/class/drm")) {
    if (!name.starts_with("renderD")) continue;
    const std::string driver = render_driver(s, name);
    if (driver.starts_with("msm") && !have(GpuKind::qualcomm))
      gpus.push_back({GpuKind::qualcomm, "Qualcomm Adreno GPU", "/sys/class/drm/" + name});
    else if (is_soc_gpu_driver(driver))
      gpus.push_back({GpuKind::other, fmt::format("GPU of the {} driver", driver), "/sys/class/drm/" + name});
  }
  return gpus;
}

std::vector<DeviceNode> find_device_nodes(const System& s) {
  std::vector<std::string> paths = s.glob("/dev/dri/renderD*");
  for (const char* path : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kgsl-3d0"})
    if (s.exists(path)) paths.emplace_back(path);
  std::vector<DeviceNode> nodes;
  for (const std::string& path : paths) {
    const std::string name = path.substr(path.rfind('/') + 1);
    nodes.push_back({path, name.starts_with("renderD") ? render_driver(s, name) : "",
                     s.node(path).value_or(Node{}), s.open_error(path)});
  }
  return nodes;
}

std::string install_command(const System& system, const Platform& platform, Package package) {
  struct Names {
    const char *apt, *dnf, *pacman, *zypper, *apk;
  };
  static const std::map<Package, Names> table = {
      {Package::vulkan_loader,
       {"libvulkan1", "vulkan-loader", "vulkan-icd-loader", "libvulkan1", "vulkan-loader"}},
      {Package::mesa_vulkan,
       {"mesa-vulkan-drivers", "mesa-vulkan-drivers",
        "vulkan-radeon vulkan-intel vulkan-nouveau vulkan-freedreno vulkan-swrast",
        "libvulkan_radeon libvulkan_intel libvulkan_freedreno libvulkan_lvp",
        "mesa-vulkan-ati mesa-vulkan-intel mesa-vulkan-swrast"}},
      {Package::opencl,
       {"ocl-icd-libopencl1 mesa-opencl-icd", "ocl-icd mesa-libOpenCL", "ocl-icd opencl-mesa",
        "libOpenCL1 Mesa-libRusticlOpenCL", "opencl-icd-loader mesa-rusticl"}},
      {Package::x_libraries,
       {"libx11-6 libxext6 libegl1", "libX11 libXext libglvnd-egl", "libx11 libxext libglvnd",
        "libX11-6 libXext6 libglvnd", "libx11 libxext"}},
      {Package::firmware,
       {"linux-firmware", "qcom-firmware", "linux-firmware-qcom", "kernel-firmware-qcom",
        "linux-firmware-qcom"}},
  };
  Names names = table.at(package);
  if (package == Package::firmware && platform.id == "debian") names.apt = "firmware-qcom-soc";
  const std::string sudo = system.uid == 0 ? "" : "sudo ";
  const std::string& manager = platform.package_manager;
  if (manager == "apt") return fmt::format("{}apt install {}", sudo, names.apt);
  if (manager == "dnf") return fmt::format("{}dnf install {}", sudo, names.dnf);
  if (manager == "pacman") return fmt::format("{}pacman -S {}", sudo, names.pacman);
  if (manager == "zypper") return fmt::format("{}zypper install {}", sudo, names.zypper);
  if (manager == "apk") return fmt::format("{}apk add {}", sudo, names.apk);
  return fmt::format("{}apt install {} (Fedora {}, Arch {}, openSUSE {}, Alpine {})", sudo, names.apt,
                     names.dnf, names.pacman, names.zypper, names.apk);
}

}  // namespace weft::doctor
