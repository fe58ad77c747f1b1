#include "doctor/manifest.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/child.h"

namespace weft::doctor {
namespace {

constexpr const char* kFolder = "/vulkan/icd.d";

/// The order of Vulkan-Loader's "Driver Discovery on Linux". With elevated rights it trusts no variable and
/// no home folder.
std::vector<std::string> search_folders(const System& s) {
  std::vector<std::string> bases;
  const auto add = [&](const std::string& base) {
    std::string clean = base;
    while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
    if (!clean.empty() && std::find(bases.begin(), bases.end(), clean) == bases.end()) bases.push_back(clean);
  };
  const auto add_list = [&](const char* variable, const char* standard) {
    const std::string value = s.elevated ? "" : s.env(variable);
    for (const std::string& base : split(value.empty() ? standard : value)) add(base);
  };
  const auto add_home = [&](const char* variable, const char* standard) {
    if (s.elevated) return;
    if (!s.env(variable).empty())
      add(s.env(variable));
    else if (!s.home().empty())
      add(s.home() + standard);
  };
  add_home("XDG_CONFIG_HOME", "/.config");
  add_list("XDG_CONFIG_DIRS", "/etc/xdg");
  add("/usr/local/etc");
  add("/etc");
  add_home("XDG_DATA_HOME", "/.local/share");
  add_list("XDG_DATA_DIRS", "/usr/local/share:/usr/share");
  for (std::string& base : bases) base += kFolder;
  return bases;
}

/// library_path: with a slash it is a path, relative to the manifest's folder; without one it is a name for
/// ld.so.
std::string resolve_library(const std::string& manifest, const std::string& library) {
  if (library.find('/') == std::string::npos || library.front() == '/') return library;
  return (std::filesystem::path(manifest).parent_path() / library).lexically_normal().string();
}

Manifest read_manifest(const System& s, const std::string& path, const std::string& origin) {
  Manifest m{.path = path, .origin = origin};
  if (!s.exists(path)) {
    m.file_error = "does not exist";
    return m;
  }
  const std::optional<std::string> text = s.readable(path) ? s.read(path) : std::nullopt;
  if (!text) {
    m.file_error = "cannot be read";
    return m;
  }
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
  if (json.is_discarded()) {
    m.file_error = "is not valid JSON";
    return m;
  }
  static const nlohmann::json kNone;
  const auto found = json.find("ICD");
  const nlohmann::json& icd = found == json.end() ? kNone : *found;  // a copy calls itself for each level
  if (!icd.is_object() || !icd.contains("library_path") || !icd["library_path"].is_string()) {
    m.file_error = "names no driver (ICD.library_path)";
    return m;
  }
  m.library = resolve_library(path, icd["library_path"].get<std::string>());
  if (icd.contains("api_version") && icd["api_version"].is_string()) m.api_version = icd["api_version"];
  if (icd.contains("library_arch") && icd["library_arch"].is_string())
    m.foreign = icd["library_arch"].get<std::string>() != (sizeof(void*) == 8 ? "64" : "32");
  return m;
}

void add_folder(const System& s, const std::string& folder, const std::string& origin,
                std::vector<Manifest>& out) {
  for (const std::string& name : s.list(folder)) {
    if (!name.ends_with(".json")) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    if (std::none_of(out.begin(), out.end(), [&](const Manifest& m) { return m.path == path; }))
      out.push_back(read_manifest(s, path, origin));
  }
}

/// Entries of VK_DRIVER_FILES and its relatives: files or folders.
void add_variable(const System& s, const std::string& variable, std::vector<Manifest>& out) {
  for (const std::string& entry : split(s.env(variable))) {
    if (s.is_directory(entry)) {
      const size_t before = out.size();
      add_folder(s, entry, variable, out);
      if (out.size() == before)
        out.push_back({.path = entry, .origin = variable, .file_error = "is a folder without manifests"});
    } else if (s.exists(entry) && !entry.ends_with(".json")) {
      out.push_back(
          {.path = entry, .origin = variable, .file_error = "does not end in .json, so the loader skips it"});
    } else {
      out.push_back(read_manifest(s, entry, variable));
    }
  }
}

}  // namespace

ManifestSearch find_manifests(const System& s) {
  ManifestSearch search;
  for (const char* variable : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"}) {
    if (s.env(variable).empty()) continue;
    if (s.elevated) {
      search.ignored_variables.push_back(fmt::format("{} (the process is setuid)", variable));
    } else if (std::string(variable) == "VK_ADD_DRIVER_FILES") {
      if (search.override_variable.empty())
        add_variable(s, variable, search.manifests);
      else
        search.ignored_variables.push_back(fmt::format("{} ({} is set)", variable, search.override_variable));
    } else if (!search.override_variable.empty()) {
      search.ignored_variables.push_back(
          fmt::format("{} ({} wins over it)", variable, search.override_variable));
    } else {
      search.override_variable = variable;
      add_variable(s, variable, search.manifests);
    }
  }
  if (!search.override_variable.empty()) return search;
  search.folders = search_folders(s);
  for (const std::string& folder : search.folders) add_folder(s, folder, "", search.manifests);
  return search;
}

std::string probe_driver_library(const System& system, const std::string& library, std::string* missing) {
  const LibraryLoad load = system.try_load(library);
  if (missing) *missing = load.missing;
  if (!load.loads) return load.error.empty() ? "cannot be loaded" : load.error;
  const ChildResult child = run_in_child(
      [&]() -> std::string {
        system.enter();
        std::string error;
        void* handle = system.load(library, error);
        if (!handle) return error;
        using Negotiate = int (*)(uint32_t*);
        using GetProc = void* (*)(void*, const char*);
        auto get = reinterpret_cast<GetProc>(dlsym(handle, "vk_icdGetInstanceProcAddr"));
        if (!get) get = reinterpret_cast<GetProc>(dlsym(handle, "vkGetInstanceProcAddr"));
        if (!get) return "exports neither vk_icdGetInstanceProcAddr nor vkGetInstanceProcAddr";
        if (auto negotiate =
                reinterpret_cast<Negotiate>(dlsym(handle, "vk_icdNegotiateLoaderICDInterfaceVersion"))) {
          uint32_t version = 5;
          if (negotiate(&version) != 0) return "refuses the loader's interface version";
        }
        // NVIDIA's GLX library loads without an X server's libraries and then has nothing to offer.
        if (!get(nullptr, "vkCreateInstance"))
          return "gives no vkCreateInstance through vk_icdGetInstanceProcAddr";
        return "";
      },
      system.deadline);
  return child.done() ? child.output : "loading it ended with " + child.reason;
}

void probe_driver(const System& system, Manifest& manifest) {
  if (!manifest.file_error.empty() || manifest.foreign) return;
  manifest.driver_error = probe_driver_library(system, manifest.library, &manifest.missing);
  if (contains(manifest.driver_error, "wrong ELF class")) {
    manifest.foreign = true;
    manifest.driver_error.clear();
  }
}

std::string user_manifest_folder(const System& system) {
  const std::string xdg = system.env("XDG_DATA_HOME");
  if (!xdg.empty()) return xdg + kFolder;
  return system.home().empty() ? "" : system.home() + "/.local/share" + kFolder;
}

}  // namespace weft::doctor
