#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace weft {

/// WEFT_CACHE, else $XDG_CACHE_HOME/weft, else ~/.cache/weft; nullopt when none of them is known.
std::optional<std::filesystem::path> cache_dir();

/// Folder of the running program; empty when unknown.
std::filesystem::path executable_dir();

/// Whole file, or nullopt when it cannot be read. Works for /proc and /sys, whose files have no size.
std::optional<std::string> read_text(const std::filesystem::path& file);

/// The folders that a file of weft's own is in, where they are missing. Throws ErrorKind::io.
void create_folders_of(const std::filesystem::path& file);

/// As a DraftFile: a reader sees the old file or the new one, never half of it. Creates missing folders: for
/// files of weft's own, not for those that a user names. Throws ErrorKind::io.
void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace weft
