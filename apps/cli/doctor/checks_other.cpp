#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks.h"

/// Things that are optional or harmless: rows 15 and 18.
namespace weft::doctor {
namespace {

/// Rusticl has a driver per kind of GPU and starts none of them unless it is told to.
const char* rusticl_driver(const Facts& f) {
  if (f.has_gpu(GpuKind::qualcomm)) return "freedreno";
  if (f.has_gpu(GpuKind::amd)) return "radeonsi";
  if (f.has_gpu(GpuKind::intel)) return "iris";
  return "llvmpipe";
}

struct Harmless {
  const char* part;
  const char* meaning;
};

constexpr Harmless kHarmless[] = {
    {"XDG_RUNTIME_DIR", "only windows need that folder; weft opens none (root usually has none)"},
    {"is not a conformant", "the driver has not been through Khronos' tests; it may work well"},
    {"ZINK requires", "OpenGL on Vulkan is not possible with this driver; weft does not use OpenGL"},
};

}  // namespace

std::optional<Finding> check_opencl(const System& s, const Facts& f) {
  const OpenCl& cl = f.opencl;
  if (cl.failure.empty() && cl.devices > 0) return std::nullopt;
  Finding finding{.severity = Severity::info, .title = "OpenCL has no device (optional)"};
  if (!cl.failure.empty())
    finding.detail = "asking for its platforms ended with: " + cl.failure;
  else if (!cl.loader_found)
    finding.detail = "libOpenCL.so.1 cannot be loaded";
  else if (cl.platforms > 0)
    finding.detail = fmt::format("{} platform(s) without a device", cl.platforms);
  else
    finding.detail = fmt::format("no platform (clGetPlatformIDs: {})", cl.rc);
  finding.detail +=
      fmt::format("; /etc/OpenCL/vendors: {}", cl.vendors.empty() ? "no *.icd" : join(cl.vendors, ", "));
  const std::string enable = fmt::format(
      "export RUSTICL_ENABLE={} (others: radeonsi, iris, freedreno, llvmpipe): Rusticl exposes no device by "
      "default.",
      rusticl_driver(f));
  if (f.nvidia.looked && cl.vendors.empty())
    finding.fix =
        "Optional; weft does not need it. NVIDIA: echo libnvidia-opencl.so.1 > "
        "/etc/OpenCL/vendors/nvidia.icd (as"
        " root), with an OpenCL loader: " +
        install_command(s, f.platform, Package::opencl);
  else
    finding.fix = fmt::format("Optional; weft does not need it. {}; then {}",
                              install_command(s, f.platform, Package::opencl), enable);
  return finding;
}

std::optional<Finding> check_harmless_messages(const System&, const Facts& f) {
  std::vector<std::string> lines;
  for (const std::string& line : split(f.vulkan.errors, '\n'))
    for (const Harmless& known : kHarmless)
      if (mentions(line, known.part)) {
        const std::string text = fmt::format("\"{}\": {}", line, known.meaning);
        if (std::find(lines.begin(), lines.end(), text) == lines.end()) lines.push_back(text);
      }
  if (lines.empty()) return std::nullopt;
  return Finding{.severity = Severity::info,
                 .title = "Drivers print messages that are harmless",
                 .detail = join(lines, "\n"),
                 .fix = "Nothing to do."};
}

}  // namespace weft::doctor
