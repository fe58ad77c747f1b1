#include "base/paths.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/draft_file.h"
#include "base/env.h"
#include "base/error.h"

namespace weft {
namespace fs = std::filesystem;

std::optional<fs::path> cache_dir() {
  if (auto dir = env::get("WEFT_CACHE")) return *dir;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg == '/') return fs::path(xdg) / "weft";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache/weft";
  return std::nullopt;
}

fs::path executable_dir() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::optional<std::string> read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  in.peek();  // a folder opens, and fails at the first read
  if (in.eof()) return "";
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  if (!text) return std::nullopt;
  return std::move(text).str();
}

void create_folders_of(const fs::path& file) {
  const fs::path folder = file.parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) fail(ErrorKind::io, "[io] cannot create {}: {}", folder.string(), error.message());
}

void write_text(const fs::path& file, const std::string& text) {
  create_folders_of(file);
  DraftFile draft(file);
  draft.write(text);
  draft.finish();
}

}  // namespace weft
