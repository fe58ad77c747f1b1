#include "doctor/system.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/child.h"
#include "base/paths.h"

namespace weft::doctor {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kReadWrite = 06;  // r and w of one permission triple

/// glibc: "libXext.so.6: cannot open shared object file: No such file or directory". The name before the
/// colon is the one thing a person needs, and often it is not the library that was asked for.
std::string missing_library(const std::string& error) {
  const size_t end = error.find(": cannot open shared object file");
  if (end == std::string::npos) return {};
  const size_t begin = error.rfind(' ', end);
  return error.substr(begin == std::string::npos ? 0 : begin + 1,
                      end - (begin == std::string::npos ? 0 : begin + 1));
}

/// Field of the line of a passwd-like file whose `key_field` holds `key`.
std::string colon_table(const std::string& text, size_t key_field, const std::string& key) {
  for (const std::string& line : split(text, '\n')) {
    std::vector<std::string> fields;
    for (size_t begin = 0; begin <= line.size();) {  // not split(): an empty password field counts
      const size_t end = std::min(line.find(':', begin), line.size());
      fields.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    if (fields.size() > key_field && fields[key_field] == key) return fields[0];
  }
  return {};
}

std::string escape_glob(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (std::strchr("*?[]\\", c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

System System::real() {
  System s;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text(*entry);
    const size_t equal = text.find('=');
    if (equal != std::string::npos) s.environment[text.substr(0, equal)] = text.substr(equal + 1);
  }
  s.uid = geteuid();
  s.gids.resize(static_cast<size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(s.gids.size()), s.gids.data());
  s.gids.resize(static_cast<size_t>(std::max(0, count)));
  s.gids.push_back(getegid());
  s.elevated = getauxval(AT_SECURE) != 0;
  utsname names{};
  if (uname(&names) == 0) s.arch = names.machine;
  return s;
}

fs::path System::at(const std::string& path) const {
  return is_real() ? fs::path(path) : root / fs::path(path).relative_path();
}

bool System::exists(const std::string& path) const {
  std::error_code ignored;
  return fs::exists(at(path), ignored);
}

bool System::is_directory(const std::string& path) const {
  std::error_code ignored;
  return fs::is_directory(at(path), ignored);
}

std::optional<std::string> System::read(const std::string& path) const {
  if (is_directory(path)) return std::nullopt;  // an ifstream opens folders
  return read_text(at(path));
}

std::string System::read_line(const std::string& path) const {
  std::string text = read(path).value_or("");
  text = text.substr(0, text.find('\n'));
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) || c == '\0'; };
  while (!text.empty() && space(text.back())) text.pop_back();
  while (!text.empty() && space(text.front())) text.erase(0, 1);
  return text;
}

std::vector<std::string> System::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(at(folder), error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> System::glob(const std::string& pattern) const {
  const std::string prefix = is_real() ? "" : root.string();
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob((escape_glob(prefix) + pattern).c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      paths.push_back(std::string(found.gl_pathv[i]).substr(prefix.size()));
  globfree(&found);
  return paths;
}

std::string System::link_name(const std::string& path) const {
  std::error_code ignored;
  return fs::read_symlink(at(path), ignored).filename().string();
}

std::optional<Node> System::node(const std::string& path) const {
  struct stat info{};
  if (stat(at(path).c_str(), &info) != 0) return std::nullopt;
  return Node{info.st_uid, info.st_gid, static_cast<unsigned>(info.st_mode) & 0777U};
}

int System::open_error(const std::string& path) const {
  if (is_real()) {
    // The kernel's own answer: it knows access lists (a desktop session gets its GPU by one) and the device
    // cgroup of a container. Opening may load firmware, so it happens in a child too.
    const ChildResult result = run_in_child(
        [&] {
          const int file = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
          return std::to_string(file >= 0 ? 0 : errno);
        },
        deadline);
    if (result.done()) return std::atoi(result.output.c_str());
    return result.end == ChildResult::End::timed_out ? ETIMEDOUT : EIO;
  }
  const std::optional<Node> file = node(path);
  if (!file) return ENOENT;
  if (uid == 0) return 0;
  const unsigned shift = file->uid == uid ? 6 : in_group(file->gid) ? 3 : 0;
  return ((file->mode >> shift) & kReadWrite) == kReadWrite ? 0 : EACCES;
}

bool System::readable(const std::string& path) const {
  if (is_real()) return ::access(path.c_str(), R_OK) == 0;
  const std::optional<Node> file = node(path);
  if (!file) return false;
  if (uid == 0) return true;
  const unsigned shift = file->uid == uid ? 6 : in_group(file->gid) ? 3 : 0;
  return ((file->mode >> shift) & 04U) != 0;
}

std::string System::env(const std::string& name) const {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

std::string System::user_name() const {
  std::string name = colon_table(read("/etc/passwd").value_or(""), 2, std::to_string(uid));
  if (name.empty()) name = env("USER");
  return name.empty() ? std::to_string(uid) : name;
}

std::string System::group_name(gid_t gid) const {
  return colon_table(read("/etc/group").value_or(""), 2, std::to_string(gid));
}

bool System::in_group(gid_t gid) const {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

void System::enter() const {
  if (is_real()) return;
  clearenv();
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

std::optional<fs::path> System::find_library(const std::string& library) const {
  std::error_code ignored;
  if (library.find('/') != std::string::npos) {
    const fs::path file = at(library);
    return fs::exists(file, ignored) ? std::optional(file) : std::nullopt;
  }
  std::vector<std::string> folders = split(env("LD_LIBRARY_PATH"));
  const std::string triplet = arch + "-linux-gnu";
  for (const std::string& folder :
       {std::string("/lib"), std::string("/usr/lib"), "/lib/" + triplet, "/usr/lib/" + triplet,
        std::string("/lib64"), std::string("/usr/lib64"), std::string("/usr/lib/wsl/lib"),
        std::string("/usr/local/lib"), std::string("/usr/local/nvidia/lib64")})
    folders.push_back(folder);
  for (const std::string& folder : folders) {
    fs::path file = at(folder) / library;
    if (fs::exists(file, ignored)) return file;
  }
  return std::nullopt;
}

void* System::load(const std::string& library, std::string& error) const {
  std::string file = library;
  if (!is_real()) {
    const std::optional<fs::path> found = find_library(library);
    if (!found) {
      error = library + ": cannot open shared object file: No such file or directory";
      return nullptr;
    }
    file = found->string();
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    error = why ? why : "dlopen failed";
  }
  return handle;
}

LibraryLoad System::try_load(const std::string& library) const {
  const ChildResult child = run_in_child(
      [&] {
        enter();
        nlohmann::json answer;
        std::string error;
        if (void* handle = load(library, error)) {
          link_map* map = nullptr;
          dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map));
          answer["path"] = map ? map->l_name : "";
        } else {
          answer["error"] = error;
        }
        return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      },
      deadline);
  LibraryLoad result;
  if (!child.done()) {  // it was found, or nothing could have gone wrong in it
    result.found = true;
    result.error = child.reason;
    return result;
  }
  const nlohmann::json answer = nlohmann::json::parse(child.output);
  result.error = answer.value("error", "");
  result.loads = !answer.contains("error");
  result.path = answer.value("path", "");
  result.missing = missing_library(result.error);
  result.found = result.loads || result.missing != library;
  return result;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool mentions(const std::string& text, const std::string& part) {
  return contains(lower(text), lower(part));
}

}  // namespace weft::doctor
