#pragma once

#include <functional>
#include <string>
#include <vector>

#include "doctor/manifest.h"
#include "doctor/opencl.h"
#include "doctor/platform.h"
#include "doctor/system.h"
#include "doctor/vulkan.h"
#include "gpu/report.h"

namespace weft::doctor {

/// NVIDIA's user-space libraries, looked at only where an NVIDIA kernel driver is.
struct NvidiaLibraries {
  bool looked = false;
  std::string version;  ///< of the kernel module; empty when not known
  LibraryLoad egl, glx, spirv;
  std::string egl_error;  ///< why libEGL_nvidia cannot be used as a Vulkan driver; empty = it can
};

/// All that was found out, in the order it was: each part is plain data, so that checks only think.
struct Facts {
  Platform platform;
  std::vector<Gpu> gpus;
  std::vector<DeviceNode> nodes;
  ManifestSearch search;
  NvidiaLibraries nvidia;
  Vulkan vulkan;
  OpenCl opencl;
  std::vector<gpu::LibraryReport> libraries;
  std::vector<std::string> problems;  ///< steps that could not be carried out, and why

  bool has_gpu(GpuKind kind) const;
  /// A manifest whose file name contains `part`.
  const Manifest* manifest(const std::string& part) const;
};

/// Finds the WebGPU libraries and their adapters.
using WebGpuProbe = std::function<std::vector<gpu::LibraryReport>(const System&)>;
/// On the real machine the GPU layer's own probe without its cache; on a fake root there are no libraries.
std::vector<gpu::LibraryReport> probe_webgpu(const System& system);

Facts gather(const System& system, const WebGpuProbe& webgpu = probe_webgpu);

}  // namespace weft::doctor
