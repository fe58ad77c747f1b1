#include <fmt/format.h>

#include "doctor/checks.h"
#include "doctor/fix.h"

/// NVIDIA's driver, mostly in containers: rows 13 and 14.
namespace weft::doctor {
namespace {

constexpr const char* kEgl = "libEGL_nvidia.so.0";

const Manifest* nvidia_manifest(const Facts& f) {
  for (const Manifest& m : f.search.manifests)
    if (contains(m.library, "libGLX_nvidia") || contains(m.library, "libEGL_nvidia")) return &m;
  return nullptr;
}

bool nvidia_works(const Facts& f) {
  return f.vulkan.has(DriverId::nvidia) || f.vulkan.has(DriverId::nvk);
}

bool any_usable_manifest(const Facts& f) {
  for (const Manifest& m : f.search.manifests)
    if (m.usable() && contains(m.library, "nvidia")) return true;
  return false;
}

std::string container_command(Container container) {
  switch (container) {
    case Container::kubernetes:
      return "In the pod: runtimeClassName: nvidia, resources: limits: nvidia.com/gpu: 1, env:"
             " NVIDIA_DRIVER_CAPABILITIES=all";
    case Container::podman:
      return "Start the container with: podman run --device nvidia.com/gpu=all -e "
             "NVIDIA_DRIVER_CAPABILITIES=all …";
    default:
      return "Start the container with: docker run --runtime=nvidia --gpus all -e "
             "NVIDIA_DRIVER_CAPABILITIES=all …";
  }
}

}  // namespace

std::optional<Finding> check_nvidia_manifest(const System& s, const Facts& f) {
  const NvidiaLibraries& n = f.nvidia;
  if (!n.looked || nvidia_works(f) || any_usable_manifest(f)) return std::nullopt;
  if (!n.egl.found && !n.glx.found) return std::nullopt;  // row 14
  const Manifest* manifest = nvidia_manifest(f);
  const bool egl_works = n.egl_error.empty();
  Finding finding{.severity = Severity::error};
  if (manifest) {
    finding.title = "NVIDIA's Vulkan manifest names a library that does not work here";
    finding.detail =
        fmt::format("{} names {}: {}", manifest->path, manifest->library, manifest->driver_error);
  } else {
    finding.title = "NVIDIA's driver is here, but no Vulkan manifest names it";
    finding.detail = fmt::format(
        "no manifest in {} names libGLX_nvidia or libEGL_nvidia",
        f.search.override_variable.empty() ? join(f.search.folders, ", ") : "$" + f.search.override_variable);
  }
  const std::string packages = install_command(s, f.platform, Package::x_libraries);
  if (!egl_works) {
    finding.detail += fmt::format("; {}: {}", kEgl, n.egl_error);
    finding.fix = fmt::format("Install what the driver needs: {}", packages);
    return finding;
  }
  finding.detail += fmt::format("; {} works", kEgl);
  const std::string file = nvidia_manifest_path(s);
  finding.fix = fmt::format(
      "weft doctor --fix writes {}; by hand: write {} to a file and export "
      "VK_DRIVER_FILES=/path/of/that/file; or"
      " install what the GLX library needs: {}",
      file.empty() ? "a manifest" : file, nvidia_manifest_text(manifest ? manifest->api_version : ""),
      packages);
  if (!f.search.override_variable.empty())
    finding.fix +=
        fmt::format(". {} is set and hides manifests in other places: unset it.", f.search.override_variable);
  const std::string api = manifest ? manifest->api_version : "";
  finding.repair = [api](const System& system) { return write_nvidia_manifest(system, api); };
  return finding;
}

std::optional<Finding> check_nvidia_libraries(const System& s, const Facts& f) {
  const NvidiaLibraries& n = f.nvidia;
  if (!n.looked || nvidia_works(f)) return std::nullopt;
  std::vector<std::string> missing;
  if (!n.egl.found) missing.emplace_back(kEgl);
  if (!n.glx.found) missing.emplace_back("libGLX_nvidia.so.0");
  const bool compiler = !n.version.empty() && !n.spirv.found;
  if (compiler) missing.push_back("libnvidia-glvkspirv.so." + n.version);
  if (!compiler && missing.size() < 2) return std::nullopt;  // one of EGL and GLX is enough
  Finding finding{
      .severity = Severity::error,
      .title = "NVIDIA's graphics libraries are not here",
      .detail = fmt::format("/dev/nvidiactl is there (CUDA may work), but not {}", join(missing, ", "))};
  if (f.platform.container != Container::none) {
    const std::string granted = s.env("NVIDIA_DRIVER_CAPABILITIES");
    finding.fix = fmt::format("{} (the default is compute,utility; here it is {})",
                              container_command(f.platform.container),
                              granted.empty() ? "not set" : "\"" + granted + "\"");
  } else {
    const std::string major = n.version.substr(0, n.version.find('.'));
    finding.fix =
        f.platform.package_manager == "apt" && !major.empty()
            ? fmt::format(
                  "Install the driver's graphics part: sudo apt install libnvidia-gl-{} (Debian:"
                  " nvidia-vulkan-icd)",
                  major)
            : "Install the graphics part of NVIDIA's driver, of the same version as the kernel module" +
                  (n.version.empty() ? std::string() : " (" + n.version + ")");
    finding.fix += ". In a container: --runtime=nvidia --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all";
  }
  return finding;
}

}  // namespace weft::doctor
