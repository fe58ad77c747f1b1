#include <fmt/format.h>

#include <cstring>

#include "doctor/report.h"

/// The report for people, in the order in which things were looked at.
namespace weft::doctor {
namespace {

class Printer {
 public:
  Printer(std::ostream& out, bool colour) : out_(out), colour_(colour) {}

  void heading(const std::string& text) { out_ << "\n" << paint("1", text) << "\n"; }

  void line(Severity severity, const std::string& text) {
    out_ << "  " << mark(severity) << " " << text << "\n";
  }

  /// Text under a line; further lines keep its column.
  void note(const std::string& text) {
    for (const std::string& part : split(text, '\n')) out_ << "       " << part << "\n";
  }

  std::string paint(const char* code, const std::string& text) const {
    return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }

 private:
  std::string mark(Severity severity) const {
    switch (severity) {
      case Severity::ok:
        return colour_ ? paint("32", "✓ ") : "ok";
      case Severity::info:
        return colour_ ? paint("36", "· ") : "--";
      case Severity::warning:
        return colour_ ? paint("33", "! ") : "!!";
      case Severity::error:
        return colour_ ? paint("31", "✗ ") : "xx";
    }
    return "  ";
  }

  std::ostream& out_;
  bool colour_;
};

void print_system(Printer& p, const Report& r) {
  const Platform& platform = r.facts.platform;
  p.heading("System");
  p.line(Severity::ok,
         fmt::format("{}, {}, kernel {}",
                     platform.distribution.empty() ? "unknown distribution" : platform.distribution,
                     r.system.arch, platform.kernel.empty() ? "unknown" : platform.kernel));
  if (platform.container != Container::none)
    p.line(Severity::ok, fmt::format("container: {}", to_string(platform.container)));
  if (platform.wsl != Wsl::no) p.line(Severity::ok, platform.wsl == Wsl::two ? "WSL 2" : "WSL 1");
  for (const char* name :
       {"WEFT_WEBGPU_LIB", "WEFT_DEVICE", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES",
        "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE", "LD_LIBRARY_PATH"})
    if (!r.system.env(name).empty()) p.line(Severity::ok, fmt::format("{}={}", name, r.system.env(name)));
}

void print_devices(Printer& p, const Facts& f) {
  p.heading("Devices");
  for (const Gpu& gpu : f.gpus) p.line(Severity::ok, fmt::format("{} at {}", gpu.name, gpu.where));
  if (f.gpus.empty()) p.line(Severity::info, "no GPU found");
  for (const DeviceNode& n : f.nodes)
    p.line(n.error ? Severity::error : Severity::ok,
           fmt::format("{}{}{}", n.path, n.driver.empty() ? "" : " (" + n.driver + ")",
                       n.error ? std::string(": ") + std::strerror(n.error) : ""));
}

void print_vulkan(Printer& p, const Facts& f) {
  p.heading("Vulkan");
  const Vulkan& v = f.vulkan;
  if (v.loader_found)
    p.line(Severity::ok, "loader libvulkan.so.1");
  else
    p.line(Severity::error, "no loader: " + v.loader_error);
  size_t usable = 0;
  for (const Manifest& m : f.search.manifests) {
    usable += m.usable() ? 1U : 0U;
    if (m.usable() || m.foreign) continue;
    p.line(Severity::warning,
           fmt::format("{}: {}", m.path, m.file_error.empty() ? m.driver_error : m.file_error));
  }
  p.line(usable ? Severity::ok : Severity::warning,
         fmt::format("{} of {} driver manifests usable", usable, f.search.manifests.size()));
  if (!v.failure.empty()) p.line(Severity::error, "listing the devices: " + v.failure);
  if (v.create_rc != 0) p.line(Severity::error, fmt::format("vkCreateInstance: error {}", v.create_rc));
  for (const VulkanDevice& d : v.devices) {
    p.line(
        d.is_cpu() ? Severity::warning : Severity::ok,
        fmt::format("{} ({}) via Vulkan {}", d.name, device_type_name(d.type), version_text(d.api_version)));
    if (!d.driver_name.empty()) p.note(fmt::format("driver {}, {}", d.driver_name, d.driver_info));
  }
}

void print_libraries(Printer& p, const Facts& f) {
  p.heading("WebGPU");
  if (f.libraries.empty()) p.line(Severity::warning, "no library");
  for (const gpu::LibraryReport& l : f.libraries) {
    const std::string name = l.implementation.empty() ? "library" : l.implementation;
    p.line(l.usable() ? Severity::ok : Severity::error,
           fmt::format("{}{}{}{}  {}", name, l.version.empty() ? "" : " ", l.version,
                       l.abi.empty() ? "" : ", class " + l.abi, l.path));
    if (!l.usable()) p.note(fmt::format("{}: {}", gpu::to_string(l.status), l.message));
    for (const gpu::AdapterReport& a : l.adapters) {
      p.line(!a.usable() ? Severity::error
             : is_gpu(a) ? Severity::ok
                         : Severity::warning,
             fmt::format("  {} ({}) via {}", a.name, gpu::to_string(a.type), a.backend));
      if (!a.usable()) p.note("  " + a.error);
    }
  }
}

void print_self_tests(Printer& p, const Report& r) {
  if (!r.tested) return;
  p.heading("Self-test");
  if (r.self_tests.empty()) p.line(Severity::warning, "there was nothing to test");
  for (const SelfTest& test : r.self_tests) {
    p.line(test.passed() ? Severity::ok : Severity::error,
           test.library == kCpuBackend ? "weft's CPU backend"
                                       : fmt::format("{}  {}", test.adapter, test.library));
    if (!test.error.empty()) p.note(test.error);
    for (const SelfTestRow& row : test.rows)
      p.note(fmt::format("{} {:<12} max difference {:.2e} (tolerance {:.0e}){}", row.passed ? "ok" : "xx",
                         row.op, row.max_difference, row.tolerance,
                         row.value > 0 ? fmt::format("  {:.1f} {}", row.value, row.unit) : ""));
  }
}

}  // namespace

void print_text(const Report& r, bool colour, std::ostream& out) {
  Printer p(out, colour);
  out << p.paint("1", "weft doctor") << "\n";
  print_system(p, r);
  print_devices(p, r.facts);
  print_vulkan(p, r.facts);
  print_libraries(p, r.facts);
  print_self_tests(p, r);
  p.heading("Findings");
  if (r.findings.empty()) p.line(Severity::ok, "nothing to fix");
  for (Severity severity : {Severity::error, Severity::warning, Severity::info})
    for (const Finding& finding : r.findings) {
      if (finding.severity != severity) continue;
      p.line(severity, fmt::format("{}  [{}]", finding.title, finding.id));
      p.note(finding.detail);
      p.note("fix: " + finding.fix);
    }
  if (!r.repairs.empty()) {
    p.heading("Repairs");
    for (const RepairReport& repair : r.repairs)
      p.line(repair.repair.changed ? Severity::ok : Severity::info,
             fmt::format("{}  [{}]", repair.repair.message, repair.id));
  }
  const char* code = r.verdict.exit_code == 0 ? "1;32" : r.verdict.exit_code == 1 ? "1;33" : "1;31";
  out << "\n" << p.paint(code, r.verdict.line()) << "\n";
}

}  // namespace weft::doctor
