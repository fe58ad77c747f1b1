#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks.h"

/// The WebGPU libraries: rows 16 and 17, and libraries that fail.
namespace weft::doctor {
namespace {

bool any_usable(const Facts& f) {
  return std::any_of(f.libraries.begin(), f.libraries.end(), [](const auto& l) { return l.usable(); });
}

}  // namespace

std::optional<Finding> check_webgpu_library(const System& s, const Facts& f) {
  const bool loads = std::any_of(
      f.libraries.begin(), f.libraries.end(),
      [](const gpu::LibraryReport& library) { return library.status != gpu::LibraryStatus::unloadable; });
  if (loads) return std::nullopt;
  Finding finding{.severity = Severity::warning, .title = "No WebGPU library"};
  std::vector<std::string> lines;
  lines.reserve(f.libraries.size());
  for (const gpu::LibraryReport& library : f.libraries)
    lines.push_back(fmt::format("{}: {}", library.path, library.message));
  const std::string chosen = s.env("WEFT_WEBGPU_LIB");
  if (!chosen.empty()) lines.push_back(fmt::format("WEFT_WEBGPU_LIB={} allows only that file", chosen));
  finding.detail = lines.empty() ? "none of the known names can be loaded" : join(lines, "\n");
  finding.fix =
      "weft falls back to its CPU backend. `make build` fetches a library, or set"
      " WEFT_WEBGPU_LIB=/path/libwgpu_native.so or libwebgpu_dawn.so.";
  return finding;
}

std::optional<Finding> check_webgpu_class(const System&, const Facts& f) {
  std::vector<std::string> refused;
  for (const gpu::LibraryReport& library : f.libraries)
    if (library.status == gpu::LibraryStatus::refused)
      refused.push_back(fmt::format("{} ({}{}{}): {}", library.path, library.implementation,
                                    library.version.empty() ? "" : " ", library.version, library.message));
  if (refused.empty()) return std::nullopt;
  return Finding{
      .severity = any_usable(f) ? Severity::warning : Severity::error,
      .title = "A WebGPU library speaks an interface that weft does not",
      .detail = join(refused, "\n"),
      .fix =
          "It speaks the API of 2024 or before (success = 0, one userdata). Install wgpu-native >= 24 or Dawn"
          " >= 2025-04, and name it with WEFT_WEBGPU_LIB."};
}

std::optional<Finding> check_webgpu_failed(const System& s, const Facts& f) {
  std::vector<std::string> lines;
  bool broken = false;
  for (const gpu::LibraryReport& library : f.libraries) {
    const bool failed =
        library.status == gpu::LibraryStatus::crashed || library.status == gpu::LibraryStatus::timed_out;
    if (failed && !uses_dozen(f)) {
      broken = true;
      lines.push_back(
          fmt::format("{} {}: {}", library.path, gpu::to_string(library.status), library.message));
    }
    if (library.status == gpu::LibraryStatus::unloadable && any_usable(f))
      lines.push_back(fmt::format("{}: {}", library.path, library.message));
    for (const gpu::AdapterReport& adapter : library.adapters)
      if (!adapter.usable() && !uses_dozen(f)) {
        broken = true;
        lines.push_back(fmt::format("{} through {}: {}", adapter.name, library.path, adapter.error));
      }
    if (library.usable() && library.adapters.empty() && f.vulkan.works() && !check_dozen_hidden(s, f)) {
      broken = true;
      lines.push_back(fmt::format("{} lists no adapter although Vulkan has {}", library.path,
                                  f.vulkan.devices.front().name));
    }
  }
  if (lines.empty()) return std::nullopt;
  return Finding{
      .severity = broken ? (any_usable(f) ? Severity::warning : Severity::error) : Severity::info,
      .title = "A WebGPU library or adapter does not work",
      .detail = join(lines, "\n"),
      .fix =
          "Name a library that works with WEFT_WEBGPU_LIB=/path/libwgpu_native.so (or libwebgpu_dawn.so), or"
          " update this one and the GPU driver. WEFT_DEVICE=cpu always works."};
}

}  // namespace weft::doctor
