#include "base/paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "support/gpus.h"
#include "support/scoped.h"

using namespace weft;
using test::error_of;
using Folder = test::ScopedFolder;
using Set = test::ScopedVariable;
namespace fs = std::filesystem;

namespace {

ptrdiff_t entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), {});
}

}  // namespace

TEST_SUITE("base: paths") {
  TEST_CASE("the cache: WEFT_CACHE, then XDG_CACHE_HOME, then HOME") {
    const Set cache("WEFT_CACHE", "/a/cache"), xdg("XDG_CACHE_HOME", "/b/xdg"), home("HOME", "/c/home");
    CHECK(cache_dir() == fs::path("/a/cache"));
    {
      const Set none("WEFT_CACHE", nullptr);
      CHECK(cache_dir() == fs::path("/b/xdg/weft"));
      const Set relative("XDG_CACHE_HOME", "not/absolute");  // XDG: to be ignored
      CHECK(cache_dir() == fs::path("/c/home/.cache/weft"));
      const Set empty("XDG_CACHE_HOME", "");
      CHECK(cache_dir() == fs::path("/c/home/.cache/weft"));
      const Set homeless("HOME", nullptr);
      CHECK_FALSE(cache_dir().has_value());
    }
    const Set empty("WEFT_CACHE", "");
    CHECK(cache_dir() == fs::path("/b/xdg/weft"));
  }

  TEST_CASE("the program's folder has the program in it") {
    CHECK(executable_dir() == fs::path(WEFT_PROGRAM).parent_path());
  }

  TEST_CASE("text comes back as it was written, and missing folders are made") {
    const Folder folder;
    const fs::path file = folder.path / "a/b/c/text";
    for (const std::string& text : {std::string(), std::string("one line\n"), std::string("\0\xff\r\n", 4),
                                    std::string(100'000, 'x')}) {
      write_text(file, text);
      CHECK((read_text(file) == text));
      CHECK(entries(file.parent_path()) == 1);  // no draft is left
    }
  }

  TEST_CASE("a reader sees the old text or the new one, never a part") {
    const Folder folder;
    const fs::path file = folder.path / "shared";
    const std::string a(50'000, 'a'), b(70'000, 'b');
    write_text(file, a);
    std::atomic<int> wrong{0};
    {
      // Two writers of one process must not share a draft either.
      const auto writer = [&](const std::string& text) {
        for (int i = 0; i < 200; ++i) try {
            write_text(file, text);
          } catch (const std::exception&) {
            ++wrong;
          }
      };
      const std::jthread first(writer, std::cref(a)), second(writer, std::cref(b));
      for (int i = 0; i < 400; ++i) {
        const auto text = read_text(file);
        if (text != a && text != b) ++wrong;
      }
    }
    CHECK(wrong == 0);
    CHECK(entries(folder.path) == 1);
  }

  TEST_CASE("what cannot be written is an error with the path, and leaves nothing behind") {
    const Folder folder;
    write_text(folder.path / "file", "old");
    // Below a regular file: not even root can make a folder there.
    auto caught = error_of([&] { write_text(folder.path / "file/below/text", "new"); });
    CHECK(caught.kind == "io");
    CHECK(caught.message.find((folder.path / "file/below").string()) != std::string::npos);
    CHECK(read_text(folder.path / "file") == "old");
    // In the place of a folder: the draft can be written, the rename fails.
    fs::create_directories(folder.path / "taken/inside");
    caught = error_of([&] { write_text(folder.path / "taken", "new"); });
    CHECK(caught.kind == "io");
    CHECK(caught.message.find((folder.path / "taken").string()) != std::string::npos);
    CHECK(entries(folder.path) == 2);
    // A name that no file system takes: the draft fails.
    caught = error_of([&] { write_text(folder.path / std::string(300, 'n'), "new"); });
    CHECK(caught.kind == "io");
    CHECK(entries(folder.path) == 2);
  }

  TEST_CASE("what cannot be read is nothing") {
    const Folder folder;
    CHECK_FALSE(read_text(folder.path / "absent").has_value());
    CHECK_FALSE(read_text(folder.path).has_value());
    write_text(folder.path / "empty", "");
    CHECK(read_text(folder.path / "empty") == "");
  }

  TEST_CASE("files without a size are read too") {
    const auto status = read_text("/proc/self/status");
    REQUIRE(status.has_value());
    CHECK(status->find(fmt::format("Pid:\t{}\n", getpid())) != std::string::npos);
  }
}
