#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "gpu/report.h"

namespace weft::gpu {

/// Library files in the order they are tried: WEFT_WEBGPU_LIB alone if set; else those that `make` fetched,
/// then the system's names.
std::vector<std::filesystem::path> library_candidates();

struct ProbeOptions {
  bool use_cache = true;  ///< false: look again, as `weft doctor` does, and remember the new answer
  std::chrono::milliseconds deadline{30'000};
};

/// First contact with a library and its drivers, in a child process: whatever they do there (abort, hang,
/// print) becomes a report. The answer is remembered per library file and driver version. Probe before you
/// open: once a library is open in this process, others are examined in the process itself.
LibraryReport probe_library(const std::filesystem::path& library, const ProbeOptions& options = {});

/// probe_library for every candidate.
std::vector<LibraryReport> probe_all(const ProbeOptions& options = {});

/// Changes when a library file, a Vulkan driver (manifest, library, kernel module) or its choosing variables
/// do.
std::string driver_fingerprint(const std::filesystem::path& library);

}  // namespace weft::gpu
