#include "base/draft_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/paths.h"
#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;
using test::error_of;
namespace fs = std::filesystem;

namespace {

void put(const fs::path& file, std::string_view text) {
  DraftFile draft(file);
  draft.write(text);
  draft.finish();
}

}  // namespace

TEST_SUITE("base: draft files") {
  TEST_CASE("what is no regular file stays what it is") {
    const test::ScopedFolder folder;
    const fs::path pipe = folder.path / "pipe", link = folder.path / "link";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink("pipe", link);
    for (const fs::path& file : {pipe, link, folder.path}) {
      const auto caught = error_of([&] { DraftFile draft(file); });
      CHECK(caught.kind == "io");
      CHECK(caught.message == fmt::format("[io] cannot write {}: it is not a regular file", file.string()));
    }
    CHECK(fs::is_fifo(pipe));
    CHECK(fs::is_symlink(link));
    CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
  }

  TEST_CASE("links stay, and what they lead to is written") {
    const test::ScopedFolder folder;
    fs::create_directory(folder.path / "far");
    fs::create_symlink("far/file", folder.path / "first");
    fs::create_symlink(folder.path / "first", folder.path / "second");
    for (const std::string text : {"not there before", "there already"}) {
      put(folder.path / "second", text);
      CHECK(fs::is_symlink(folder.path / "first"));
      CHECK(fs::is_symlink(folder.path / "second"));
      CHECK(fs::is_regular_file(fs::symlink_status(folder.path / "far/file")));
      CHECK(read_text(folder.path / "far/file") == text);
    }
    fs::create_symlink("circle", folder.path / "circle");
    CHECK(error_of([&] { put(folder.path / "circle", "x"); }).kind == "io");
  }

  TEST_CASE("a missing folder is an error that names it, and is not made") {
    const test::ScopedFolder folder;
    const fs::path none = folder.path / "none", file = none / "file";
    const auto caught = error_of([&] { put(file, "x"); });
    CHECK(caught.kind == "io");
    CHECK(caught.message ==
          fmt::format("[io] cannot write {}: there is no folder {}", file.string(), none.string()));
    CHECK_FALSE(fs::exists(none));
    create_folders_of(file);
    put(file, "x");
    CHECK(read_text(file) == "x");
  }
}
