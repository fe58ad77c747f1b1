#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/system.h"

namespace weft::doctor {

/// The manifest that makes NVIDIA's driver work without the libraries of an X server.
std::string nvidia_manifest_text(const std::string& api_version);
/// Where `--fix` puts it: in the folder of this user's manifests; empty when no home is known.
std::string nvidia_manifest_path(const System& system);

/// Writes it. Leaves alone any file that weft did not write, and does nothing the second time.
Repair write_nvidia_manifest(const System& system, const std::string& api_version);

/// One finding's repair, tried.
struct RepairReport {
  std::string id;
  Repair repair;
};

/// Carries out what can be done safely; everything else stays a command for a person to run.
std::vector<RepairReport> apply_repairs(const System& system, const std::vector<Finding>& findings);

}  // namespace weft::doctor
