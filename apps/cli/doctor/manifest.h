#pragma once

#include <string>
#include <vector>

#include "doctor/system.h"

namespace weft::doctor {

/// One Vulkan driver manifest (icd.d/*.json) and whether the driver behind it can be started.
struct Manifest {
  std::string path = {};
  std::string origin = {};        ///< variable that names it; empty = found on the search path
  std::string library = {};       ///< library_path resolved as the loader does it
  std::string api_version = {};   ///< as written in the file
  std::string file_error = {};    ///< missing, not readable, not JSON, no library_path; empty = fine
  std::string driver_error = {};  ///< why the driver's library cannot be used; empty = fine or not tried
  std::string missing = {};       ///< library that could not be opened, when that is why
  bool foreign = false;           ///< for another architecture (32 bit): the loader skips it silently

  bool usable() const { return file_error.empty() && driver_error.empty() && !foreign; }
  std::string name() const { return path.substr(path.rfind('/') + 1); }
};

/// What the loader would look at, in its order.
struct ManifestSearch {
  std::string override_variable;     ///< VK_DRIVER_FILES or VK_ICD_FILENAMES when it replaces the search
  std::vector<std::string> folders;  ///< searched folders; empty when an override replaces them
  std::vector<Manifest> manifests;
  std::vector<std::string> ignored_variables;  ///< set, but without effect, and why
};

/// Finds and reads the manifests; starts no driver.
ManifestSearch find_manifests(const System& system);

/// Loads the driver's library in a child and asks it for vkCreateInstance, as the loader would.
void probe_driver(const System& system, Manifest& manifest);
/// The same for a library without a manifest; returns the error, empty when the driver can be started.
std::string probe_driver_library(const System& system, const std::string& library,
                                 std::string* missing = nullptr);

/// Where manifests of this user belong: $XDG_DATA_HOME/vulkan/icd.d; empty when no home is known.
std::string user_manifest_folder(const System& system);

}  // namespace weft::doctor
