#include "doctor/fix.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "base/paths.h"
#include "doctor/manifest.h"

namespace weft::doctor {
namespace {

constexpr const char* kFile = "weft_nvidia_icd.json";
constexpr const char* kAuthor = "weft doctor --fix";

nlohmann::ordered_json nvidia_manifest_json(const std::string& api_version) {
  return {{"file_format_version", "1.0.0"},
          {"ICD",
           {{"library_path", "libEGL_nvidia.so.0"},
            {"api_version", api_version.empty() ? "1.3.0" : api_version}}}};
}

/// The loader ignores keys it does not know, so the file can say whose it is.
bool is_ours(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  return json.is_object() && json.contains("written_by") && json["written_by"] == kAuthor;
}

}  // namespace

std::string nvidia_manifest_text(const std::string& api_version) {
  return nvidia_manifest_json(api_version).dump();
}

std::string nvidia_manifest_path(const System& system) {
  const std::string folder = user_manifest_folder(system);
  return folder.empty() ? "" : folder + "/" + kFile;
}

Repair write_nvidia_manifest(const System& system, const std::string& api_version) {
  const std::string path = nvidia_manifest_path(system);
  if (path.empty()) return {false, "HOME is not set: there is no folder for this user's driver manifests"};
  nlohmann::ordered_json json = nvidia_manifest_json(api_version);
  json["written_by"] = kAuthor;
  const std::string text = json.dump(2) + "\n";
  if (system.exists(path)) {
    const std::string there = system.read(path).value_or("");
    if (!is_ours(there)) return {false, fmt::format("left {} alone: weft did not write it", path)};
    if (there == text) return {false, fmt::format("{} is already written", path)};
  }
  write_text(system.at(path), text);
  return {true, fmt::format("wrote {}", path)};
}

std::vector<RepairReport> apply_repairs(const System& system, const std::vector<Finding>& findings) {
  std::vector<RepairReport> reports;
  for (const Finding& finding : findings) {
    if (!finding.repair) continue;
    try {
      reports.push_back({finding.id, finding.repair(system)});
    } catch (const std::exception& e) {
      reports.push_back({finding.id, {false, e.what()}});
    }
  }
  return reports;
}

}  // namespace weft::doctor
