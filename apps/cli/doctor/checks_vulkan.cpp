#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks.h"
#include "doctor/vulkan_abi.h"

/// Loader, drivers and manifests: rows 1 to 3.
namespace weft::doctor {
namespace {

/// The first lines of what the loader said, which name files and libraries.
std::string loader_words(const Facts& f) {
  std::string words;
  for (const std::string& line : split(f.vulkan.errors, '\n'))
    if (mentions(line, "error") || mentions(line, "found no drivers")) words += "\n" + line;
  return words;
}

/// Row 13 and 14 explain NVIDIA's libraries better than the general rows can.
bool explained_elsewhere(const Manifest& m, const Facts& f) {
  return f.nvidia.looked && contains(m.library, "nvidia");
}

}  // namespace

std::optional<Finding> check_vulkan_loader(const System& s, const Facts& f) {
  if (f.vulkan.loader_found) return std::nullopt;
  return Finding{.severity = Severity::error,
                 .title = "The Vulkan loader is missing",
                 .detail = f.vulkan.loader_error,
                 .fix = install_command(s, f.platform, Package::vulkan_loader)};
}

std::optional<Finding> check_vulkan_driver(const System& s, const Facts& f) {
  const Vulkan& v = f.vulkan;
  if (!v.loader_found || !v.failure.empty() || !v.devices.empty()) return std::nullopt;
  if (check_driver_override(s, f)) return std::nullopt;  // then that is the cause
  Finding finding{.severity = Severity::error, .title = "No Vulkan driver works"};
  const std::vector<Manifest>& manifests = f.search.manifests;
  const bool usable =
      std::any_of(manifests.begin(), manifests.end(), [](const Manifest& m) { return m.usable(); });
  if (manifests.empty()) {
    finding.title = "No Vulkan driver is installed";
    finding.detail = fmt::format("no driver manifest (*.json) in {}", join(f.search.folders, ", "));
  } else {
    std::vector<std::string> names;
    names.reserve(manifests.size());
    for (const Manifest& m : manifests) names.push_back(m.name());
    finding.detail = fmt::format("{} driver manifest{} found ({}), {}", manifests.size(),
                                 manifests.size() == 1 ? "" : "s", join(names, ", "),
                                 usable ? "but no driver finds its hardware" : "but no driver can be loaded");
  }
  if (v.create_rc == vk::kIncompatibleDriver)
    finding.detail += "; vkCreateInstance: VK_ERROR_INCOMPATIBLE_DRIVER (-9)";
  else if (v.create_rc != 0)
    finding.detail += fmt::format("; Vulkan error {}", v.create_rc);
  finding.detail += loader_words(f);
  if (const std::optional<std::string> id = explained_by(s, f)) {
    finding.fix = fmt::format("The reason is the finding `{}`: follow its fix.", *id);
    return finding;
  }
  finding.fix = fmt::format(
      "{}, or the GPU vendor's driver. Mesa's package also brings llvmpipe, which runs on any CPU.",
      install_command(s, f.platform, Package::mesa_vulkan));
  return finding;
}

std::optional<Finding> check_driver_override(const System& s, const Facts& f) {
  std::vector<std::string> wrong, variables;
  bool good = false;
  for (const Manifest& m : f.search.manifests) {
    if (m.origin.empty()) continue;
    if (m.usable()) {
      good = true;
      continue;
    }
    std::string what = m.file_error;
    if (m.foreign) what = "is for another architecture";
    if (!m.driver_error.empty())
      what = fmt::format("names {}, which does not work ({})", m.library, m.driver_error);
    wrong.push_back(fmt::format("{} points to {}, which {}.", m.origin, m.path, what));
    if (std::find(variables.begin(), variables.end(), m.origin) == variables.end())
      variables.push_back(m.origin);
  }
  if (wrong.empty()) return std::nullopt;
  const bool replaces = !f.search.override_variable.empty();
  Finding finding{.severity = replaces && !good ? Severity::error : Severity::warning,
                  .title = fmt::format("{} names a driver that cannot be used", join(variables, " and "))};
  finding.detail = join(wrong, "\n");
  if (replaces)
    finding.detail += fmt::format("\n{} replaces the loader's whole search.", f.search.override_variable);
  for (const std::string& ignored : f.search.ignored_variables)
    finding.detail += "\nWithout effect: " + ignored + ".";
  finding.fix = fmt::format("unset {}, or correct it.", join(variables, " "));
  for (const std::string& path : s.glob("/usr/share/vulkan/icd.d/*.json")) {
    finding.fix += fmt::format(" Installed manifests are in /usr/share/vulkan/icd.d, e.g. {}.", path);
    break;
  }
  finding.fix +=
      " VK_DRIVER_FILES wins over the older VK_ICD_FILENAMES and both replace the search; "
      "VK_ADD_DRIVER_FILES adds"
      " to it.";
  return finding;
}

std::optional<Finding> check_driver_library(const System& s, const Facts& f) {
  std::vector<std::string> lines, missing;
  for (const Manifest& m : f.search.manifests) {
    if (!m.origin.empty() || m.usable() || m.foreign || explained_elsewhere(m, f)) continue;
    lines.push_back(m.file_error.empty() ? fmt::format("{}: {}: {}", m.path, m.library, m.driver_error)
                                         : fmt::format("{} {}", m.path, m.file_error));
    if (!m.missing.empty()) missing.push_back(m.missing);
  }
  if (lines.empty()) return std::nullopt;
  Finding finding{
      .severity = f.vulkan.works() && !f.vulkan.only_software() ? Severity::info : Severity::warning,
      .title = "A Vulkan driver is listed but cannot be loaded",
      .detail = join(lines, "\n")};
  finding.fix = fmt::format("Reinstall the driver ({}), or remove its manifest.",
                            install_command(s, f.platform, Package::mesa_vulkan));
  if (!missing.empty())
    finding.fix = fmt::format("Install what provides {}. {}", join(missing, ", "), finding.fix);
  return finding;
}

std::optional<Finding> check_vulkan_crash(const System&, const Facts& f) {
  if (f.vulkan.failure.empty() || uses_dozen(f)) return std::nullopt;
  std::vector<std::string> names;
  for (const Manifest& m : f.search.manifests)
    if (m.usable()) names.push_back(m.path);
  Finding finding{
      .severity = Severity::error,
      .title = f.vulkan.timed_out ? "Vulkan does not answer" : "A Vulkan driver crashes",
      .detail = fmt::format("listing the devices ended with: {}{}", f.vulkan.failure, loader_words(f))};
  finding.fix = "Find the driver that fails by trying them one at a time, then update or remove it:";
  for (const std::string& name : names) finding.fix += fmt::format("\nVK_DRIVER_FILES={} weft doctor", name);
  if (names.empty())
    finding.fix =
        "Update the GPU driver; layers can be at fault too: VK_LOADER_LAYERS_DISABLE=~all~ weft doctor";
  return finding;
}

}  // namespace weft::doctor
