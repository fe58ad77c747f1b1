#include <fmt/format.h>

#include <cstdio>

#include "doctor/checks.h"

/// Laptops with Snapdragon X: Turnip, firmware, and the KGSL question: rows 10 to 12.
namespace weft::doctor {
namespace {

struct MesaVersion {
  int major = 0, minor = 0;
  bool known() const { return major > 0; }
};

/// A software driver of the same Mesa tells the version ("Mesa 23.2.1-1ubuntu3 (LLVM 15.0.7)"); else dpkg
/// knows.
MesaVersion mesa_version(const System& s, const Facts& f) {
  MesaVersion v;
  for (const VulkanDevice& device : f.vulkan.devices)
    if (std::sscanf(device.driver_info.c_str(), "Mesa %d.%d", &v.major, &v.minor) == 2) return v;
  const std::string status = s.read("/var/lib/dpkg/status").value_or("");
  const size_t package = status.find("Package: mesa-vulkan-drivers\n");
  if (package == std::string::npos) return {};
  const size_t end = status.find("\n\n", package);
  const size_t line = status.find("\nVersion: ", package);
  if (line == std::string::npos || line > end) return {};
  std::string version = status.substr(line + 10, 40);
  const size_t colon = version.find(':');  // an epoch, if there is one
  if (colon != std::string::npos && colon < version.find('\n')) version.erase(0, colon + 1);
  if (std::sscanf(version.c_str(), "%d.%d", &v.major, &v.minor) != 2) return {};
  return v;
}

bool adreno_works(const Facts& f) {
  return f.vulkan.has(DriverId::turnip) || f.vulkan.has(DriverId::qualcomm);
}

/// A firmware file, as it is or compressed.
bool has_firmware(const System& s, const std::string& name) {
  for (const char* folder : {"/lib/firmware", "/usr/lib/firmware", "/lib/firmware/updates"})
    for (const char* ending : {"", ".zst", ".xz"})
      if (s.exists(fmt::format("{}/{}{}", folder, name, ending))) return true;
  return false;
}

/// The makers' folders are qcom/x1e80100/LENOVO/21N1/…: two levels, sometimes one.
bool has_zap_shader(const System& s, const std::string& name) {
  for (const char* folder : {"/lib/firmware", "/usr/lib/firmware", "/lib/firmware/updates"})
    for (const char* depth : {"/*", "/*/*", "/*/*/*"})
      if (!s.glob(fmt::format("{}/qcom{}/{}*", folder, depth, name)).empty()) return true;
  return false;
}

/// "Direct firmware load for qcom/gen70500_sqe.fw failed with error -2", where a boot log may be read.
std::string firmware_complaint(const System& s) {
  for (const char* log : {"/var/log/dmesg", "/var/log/kern.log"})
    for (const std::string& line : split(s.read(log).value_or(""), '\n'))
      if (contains(line, "firmware load for qcom/") && contains(line, "failed")) return line;
  return {};
}

bool has_render_node(const Facts& f) {
  for (const DeviceNode& n : f.nodes)
    if (contains(n.path, "renderD")) return true;
  return false;
}

}  // namespace

std::optional<Finding> check_snapdragon_turnip(const System& s, const Facts& f) {
  const Snapdragon* chip = f.platform.snapdragon;
  if (!chip || adreno_works(f)) return std::nullopt;
  const MesaVersion mesa = mesa_version(s, f);
  const bool old = mesa.known() && (mesa.major < chip->mesa_major ||
                                    (mesa.major == chip->mesa_major && mesa.minor < chip->mesa_minor));
  const bool missing = f.manifest("freedreno_icd") == nullptr;
  // Turnip of an older Mesa: "device (chip_id = FFFF43050C01, gpu_id = 0) is unsupported".
  const bool refused = contains(f.vulkan.errors, "chip_id") && contains(f.vulkan.errors, "is unsupported");
  if (!old && !missing && !refused) return std::nullopt;
  std::vector<std::string> seen;
  if (mesa.known()) seen.push_back(fmt::format("Mesa is {}.{}", mesa.major, mesa.minor));
  if (missing) seen.emplace_back("no manifest freedreno_icd*.json");
  if (refused) seen.emplace_back("Turnip says that the GPU is unsupported");
  Finding finding{.severity = Severity::error,
                  .title = fmt::format("No Vulkan driver for the {} (Turnip)", chip->gpu),
                  .detail = join(seen, "; ")};
  finding.fix =
      fmt::format("{} needs Mesa >= {}.{}{} and a kernel that knows the chip's GPU ({}*): {}", chip->gpu,
                  chip->mesa_major, chip->mesa_minor, chip->mesa_major < 26 ? " (X2-85: 26.0)" : "",
                  chip->compatible, install_command(s, f.platform, Package::mesa_vulkan));
  if (old && f.platform.id == "ubuntu")
    finding.fix +=
        "; this release's Mesa is too old: sudo add-apt-repository ppa:kisak/kisak-mesa && sudo apt upgrade";
  else if (old && f.platform.id == "debian")
    finding.fix += "; this release's Mesa is too old: take it from backports";
  else if (old)
    finding.fix += "; update to a release with that Mesa";
  return finding;
}

std::optional<Finding> check_snapdragon_firmware(const System& s, const Facts& f) {
  const Snapdragon* chip = f.platform.snapdragon;
  if (!chip || adreno_works(f)) return std::nullopt;
  std::vector<std::string> missing;
  for (const std::string& name :
       {fmt::format("qcom/{}_sqe.fw", chip->firmware), fmt::format("qcom/{}_gmu.bin", chip->firmware)})
    if (!has_firmware(s, name)) missing.push_back("/lib/firmware/" + name);
  const bool zap = chip->zap && !has_zap_shader(s, chip->zap);
  if (zap) missing.emplace_back(chip->zap);
  const std::string complaint = firmware_complaint(s);
  if (missing.empty() && complaint.empty()) return std::nullopt;
  Finding finding{.severity = Severity::error, .title = fmt::format("The {} lacks firmware", chip->gpu)};
  finding.detail = missing.empty() ? "the files are there, but the kernel did not find them at boot"
                                   : "missing: " + join(missing, ", ");
  if (!has_render_node(f)) finding.detail += "; there is no /dev/dri/renderD*";
  if (!complaint.empty()) finding.detail += "\n" + complaint;
  finding.fix = install_command(s, f.platform, Package::firmware);
  if (chip->zap)
    finding.fix +=
        fmt::format("; the zap shader {} comes from the Windows partition ({}qcom-firmware-extract)",
                    chip->zap, s.uid == 0 ? "" : "sudo ");
  const std::string& manager = f.platform.package_manager;
  finding.fix += fmt::format("; then rebuild the initramfs ({}{}) and reboot.", s.uid == 0 ? "" : "sudo ",
                             manager == "apt"      ? "update-initramfs -u"
                             : manager == "pacman" ? "mkinitcpio -P"
                                                   : "dracut --force");
  return finding;
}

std::optional<Finding> check_kgsl(const System& s, const Facts& f) {
  if (s.exists("/dev/kgsl-3d0")) return std::nullopt;
  bool msm = s.exists("/sys/module/msm");
  for (const DeviceNode& n : f.nodes) msm = msm || n.driver.starts_with("msm");
  if (!msm) return std::nullopt;
  return Finding{
      .severity = Severity::info,
      .title = "There is no /dev/kgsl-3d0 (not an error)",
      .detail = "The kernel drives the Adreno GPU through DRM msm.",
      .fix =
          "Not an error: KGSL is Qualcomm's downstream kernel driver. Mainline Linux uses DRM msm and"
          " Turnip; use the WebGPU or Vulkan device."};
}

}  // namespace weft::doctor
