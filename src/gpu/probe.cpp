#include "gpu/probe.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>

#include "base/child.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/paths.h"
#include "gpu/adapter.h"
#include "gpu/truth.h"

namespace weft::gpu {
namespace {

namespace fs = std::filesystem;
constexpr int kProbeVersion = 1;  // of the questions asked; a new number asks again

/// 64-bit FNV-1a, as hexadecimal digits.
std::string digest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

/// Path, size and time of a file: enough to see that it was replaced.
std::string stamp(const fs::path& file) {
  std::error_code error;
  const fs::path real = fs::canonical(file, error);
  if (error) return file.string() + " absent\n";
  const auto time = fs::last_write_time(real, error).time_since_epoch().count();
  return fmt::format("{} {} {}\n", real.string(), fs::file_size(real, error), time);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The parts of a list separated by colons.
std::vector<std::string> split_paths(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Where the dynamic linker would look, as far as it matters for libraries that people install by hand.
std::vector<fs::path> system_library_folders() {
  std::vector<fs::path> folders;
  for (const std::string& folder : split_paths(variable("LD_LIBRARY_PATH"))) folders.emplace_back(folder);
  for (const char* folder : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib"})
    folders.emplace_back(folder);
  return folders;
}

/// Runs in the child. Whatever can be said about a library without a crash.
LibraryReport examine(const fs::path& path) {
  LibraryReport report;
  report.path = path.string();
  try {
    const Library library = Library::open(path);
    report.path = library.path().string();
    report.implementation = library.implementation();
    report.abi = std::string(1, library.abi_class());
    report.version = library.version();
    for (const Adapter& adapter : library.adapters()) {
      AdapterReport seen = adapter.info();
      try {
        seen.features = prove_features(adapter);
        Device device = Device::create(adapter, seen.features,
                                       {.faults = std::make_shared<FaultPlan>(std::vector<std::string>{})});
        measure_costs(device, seen);
      } catch (const Error& e) {
        seen.error = e.what();
      }
      report.adapters.push_back(std::move(seen));
    }
    if (report.adapters.empty())
      report.message = "[webgpu] the library finds no adapter; `weft doctor` says why";
  } catch (const Error& e) {
    report.status = e.kind() == ErrorKind::unsupported ? LibraryStatus::refused : LibraryStatus::unloadable;
    report.message = e.what();
  }
  return report;
}

fs::path cache_file(const fs::path& cache, const fs::path& library) {
  return cache / "probe" / (digest(driver_fingerprint(library)) + ".json");
}

}  // namespace

std::string driver_fingerprint(const fs::path& library) {
  std::string text = fmt::format("probe {}\n{}", kProbeVersion, stamp(library));
  for (const char* name :
       {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "VK_LOADER_DRIVERS_SELECT",
        "VK_LOADER_DRIVERS_DISABLE", "LD_LIBRARY_PATH", "WGPU_ADAPTER_NAME"})
    text += fmt::format("{}={}\n", name, variable(name));
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"})
    for (const std::string& file : split_paths(variable(name))) text += stamp(file);
  std::set<std::string> manifests;  // sorted: directory order is not stable
  for (const fs::path& folder : {fs::path("/etc/vulkan/icd.d"), fs::path("/usr/share/vulkan/icd.d"),
                                 fs::path("/usr/local/share/vulkan/icd.d"),
                                 fs::path(variable("HOME")) / ".local/share/vulkan/icd.d"}) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      manifests.insert(stamp(entry.path()));
  }
  for (const std::string& manifest : manifests) text += manifest;
  text += read_text("/proc/driver/nvidia/version").value_or("");
  text += read_text("/proc/sys/kernel/osrelease").value_or("");
  return text;
}

std::vector<fs::path> library_candidates() {
  if (auto only = env::get("WEFT_WEBGPU_LIB")) return {*only};
  std::vector<fs::path> candidates;
  const auto add = [&](const fs::path& file) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    if (!error && std::ranges::find(candidates, real) == candidates.end()) candidates.push_back(real);
  };
  const fs::path beside = executable_dir();
  for (const fs::path& folder : {beside / "webgpu", beside / "../lib/weft", fs::path(WEFT_FETCHED_DIR)})
    for (const char* name : {"dawn.node", "libwgpu_native.so"})  // Dawn first: only it has subgroup matrices
      add(folder / name);
  for (const fs::path& folder : system_library_folders())
    for (const char* name : {"libwebgpu_dawn.so", "libwebgpu_dawn.so.0", "libwgpu_native.so"})
      add(folder / name);
  return candidates;
}

LibraryReport probe_library(const fs::path& library, const ProbeOptions& options) {
  const std::optional<fs::path> cache = cache_dir();
  if (cache && options.use_cache)
    if (const auto known = read_text(cache_file(*cache, library))) try {
        return library_report_from_json(*known);
      } catch (const Error& e) {
        log(LogLevel::debug, "{}; asking again", e.what());
      }

  log(LogLevel::info, "first contact with {}", library.string());
  LibraryReport report;
  if (Library::any_opened()) {
    // Drivers do not survive a fork (NVIDIA's breaks the parent too), and one that runs here already is no
    // stranger.
    report = examine(library);
  } else {
    const ChildResult child = run_in_child([&] { return to_json(examine(library)); }, options.deadline);
    if (child.done()) {
      report = library_report_from_json(child.output);
    } else {
      report.path = library.string();
      report.status =
          child.end == ChildResult::End::timed_out ? LibraryStatus::timed_out : LibraryStatus::crashed;
      report.message = fmt::format("[webgpu] first contact with {} failed: {}; `weft doctor` looks closer",
                                   library.string(), child.reason);
    }
    if (!child.errors.empty()) log(LogLevel::debug, "{} wrote:\n{}", library.string(), child.errors);
  }
  if (cache) try {
      write_text(cache_file(*cache, library), to_json(report));
    } catch (const Error& e) {
      log(LogLevel::info, "{}; the next start will ask again", e.what());
    }
  return report;
}

std::vector<LibraryReport> probe_all(const ProbeOptions& options) {
  std::vector<LibraryReport> reports;
  for (const fs::path& library : library_candidates()) reports.push_back(probe_library(library, options));
  return reports;
}

}  // namespace weft::gpu
