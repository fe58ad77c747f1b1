#include "doctor/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>

#include "gpu/probe.h"

namespace weft::doctor {
namespace {

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 …": the first word that is a
/// version.
std::string nvidia_version(const System& s) {
  for (const std::string& word : split(s.read_line("/proc/driver/nvidia/version"), ' '))
    if (std::isdigit(static_cast<unsigned char>(word[0])) && contains(word, ".")) return word;
  return {};
}

NvidiaLibraries find_nvidia(const System& s) {
  NvidiaLibraries n;
  if (!s.exists("/dev/nvidiactl")) return n;
  n.looked = true;
  n.version = nvidia_version(s);
  n.glx = s.try_load("libGLX_nvidia.so.0");
  n.egl = s.try_load("libEGL_nvidia.so.0");
  n.egl_error = n.egl.loads ? probe_driver_library(s, "libEGL_nvidia.so.0") : n.egl.error;
  if (!n.version.empty()) n.spirv = s.try_load("libnvidia-glvkspirv.so." + n.version);
  return n;
}

}  // namespace

bool Facts::has_gpu(GpuKind kind) const {
  return std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& g) { return g.kind == kind; });
}

const Manifest* Facts::manifest(const std::string& part) const {
  for (const Manifest& m : search.manifests)
    if (contains(m.name(), part)) return &m;
  return nullptr;
}

std::vector<gpu::LibraryReport> probe_webgpu(const System& system) {
  return system.is_real() ? gpu::probe_all({.use_cache = false}) : std::vector<gpu::LibraryReport>{};
}

Facts gather(const System& system, const WebGpuProbe& webgpu) {
  Facts f;
  // One broken step must not hide what the others can tell.
  const auto step = [&](const char* name, const auto& work) {
    try {
      work();
    } catch (const std::exception& e) {
      f.problems.push_back(fmt::format("{}: {}", name, e.what()));
    }
  };
  step("operating system", [&] { f.platform = find_platform(system); });
  step("GPUs", [&] { f.gpus = find_gpus(system, f.platform); });
  step("device nodes", [&] { f.nodes = find_device_nodes(system); });
  step("driver manifests", [&] {
    f.search = find_manifests(system);
    for (Manifest& m : f.search.manifests) probe_driver(system, m);
  });
  step("NVIDIA libraries", [&] { f.nvidia = find_nvidia(system); });
  step("Vulkan", [&] { f.vulkan = probe_vulkan(system); });
  step("OpenCL", [&] { f.opencl = probe_opencl(system); });
  step("WebGPU libraries", [&] { f.libraries = webgpu(system); });
  return f;
}

}  // namespace weft::doctor
