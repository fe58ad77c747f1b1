#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::doctor {

/// A file or device node as permission checks see it.
struct Node {
  uid_t uid = 0;
  gid_t gid = 0;
  unsigned mode = 0;  ///< the nine permission bits
};

/// The outcome of dlopen, tried in a child process because drivers run code when they are loaded.
struct LibraryLoad {
  bool found = false;   ///< a file of that name exists (it may still lack a dependency)
  bool loads = false;   ///< dlopen succeeded
  std::string path;     ///< file that was loaded; empty when unknown
  std::string error;    ///< dlerror, or how the child ended
  std::string missing;  ///< name of the library that could not be opened: the file itself or a dependency
};

/// The machine as the checks see it. Paths are always written as on the machine ("/dev/dri"); `root` says
/// where that machine's files are, so that a folder tree made by a test can stand for any laptop, container
/// or WSL.
struct System {
  std::filesystem::path root = "/";
  std::map<std::string, std::string> environment;
  uid_t uid = 0;
  std::vector<gid_t> gids;
  bool elevated = false;  ///< setuid or setgid: the Vulkan loader then ignores its variables
  std::string arch;       ///< as `uname -m` says
  std::chrono::milliseconds deadline{20'000};  ///< for one contact with a driver

  /// This machine and this process.
  static System real();

  bool is_real() const { return root == "/"; }

  /// Where a path of the machine is on this file system.
  std::filesystem::path at(const std::string& path) const;

  bool exists(const std::string& path) const;
  bool is_directory(const std::string& path) const;
  std::optional<std::string> read(const std::string& path) const;
  /// First line without white space around it; empty when there is none.
  std::string read_line(const std::string& path) const;
  /// Names in a folder, sorted; empty when there is no such folder.
  std::vector<std::string> list(const std::string& folder) const;
  /// Paths of the machine that match a shell pattern, sorted.
  std::vector<std::string> glob(const std::string& pattern) const;
  /// Last part of what a symbolic link points to; empty when it is none.
  std::string link_name(const std::string& path) const;
  std::optional<Node> node(const std::string& path) const;

  /// 0, or the errno with which opening for reading and writing would fail.
  int open_error(const std::string& path) const;
  bool readable(const std::string& path) const;

  /// Value of a variable; empty when unset.
  std::string env(const std::string& name) const;
  std::string home() const { return env("HOME"); }
  /// Name of the user from /etc/passwd, else $USER, else the number.
  std::string user_name() const;
  std::string group_name(gid_t gid) const;
  bool in_group(gid_t gid) const;

  /// Tries to load a library by name or by path, in a child process.
  LibraryLoad try_load(const std::string& library) const;

  /// For code that already runs in a child process: makes the environment of this system the process'.
  void enter() const;
  /// dlopen; nullptr on failure with the reason in `error`. On a fake root the file is searched as ld.so
  /// would.
  void* load(const std::string& library, std::string& error) const;
  /// Where a library is on a fake root: path on this file system.
  std::optional<std::filesystem::path> find_library(const std::string& library) const;
};

/// Parts of a list like $PATH; empty parts are dropped.
std::vector<std::string> split(const std::string& text, char separator = ':');
std::string join(const std::vector<std::string>& parts, const std::string& separator);
std::string lower(std::string text);
bool contains(const std::string& text, const std::string& part);
/// `contains` that does not care about upper and lower case.
bool mentions(const std::string& text, const std::string& part);

}  // namespace weft::doctor
