#include "base/memory.h"

#include <doctest/doctest.h>

#include "base/paths.h"
#include "support/scoped.h"

using namespace weft;

TEST_SUITE("base: memory") {
  TEST_CASE("what is free is the system's, less where a control group has a limit") {
    const test::ScopedFolder folder;
    const auto write = [&](const std::filesystem::path& file, const std::string& text) {
      std::filesystem::create_directories((folder.path / file).parent_path());
      write_text(folder.path / file, text);
    };
    CHECK_FALSE(free_memory(folder.path));
    CHECK_FALSE(total_memory(folder.path));
    write("proc/meminfo", "MemTotal: 9000 kB\nMemFree:  10 kB\nMemAvailable:  4000 kB\nSwapFree:  100 kB\n");
    CHECK(free_memory(folder.path) == 4100 << 10);
    CHECK(total_memory(folder.path) == 9000 << 10);
    write("proc/self/cgroup", "0::/user/one\n");
    CHECK(free_memory(folder.path) == 4100 << 10);
    write("sys/fs/cgroup/user/one/memory.current", "500000\n");
    write("sys/fs/cgroup/user/one/memory.stat", "anon 7\ninactive_file 200000\n");
    write("sys/fs/cgroup/user/one/memory.max", "max\n");
    CHECK(free_memory(folder.path) == 4100 << 10);
    write("sys/fs/cgroup/user/one/memory.max", "1000000\n");
    CHECK(free_memory(folder.path) == 700'000 + (100 << 10));
    CHECK(total_memory(folder.path) == 1'000'000);
    write("sys/fs/cgroup/user/one/memory.max", "100000\n");
    CHECK(free_memory(folder.path) == 100 << 10);
  }

#ifdef __linux__
  TEST_CASE("this machine has some") {
    CHECK(free_memory().value_or(0) > 1 << 20);
    CHECK(free_memory().value_or(0) < uint64_t{1} << 50);
    CHECK(total_memory().value_or(0) > 1 << 20);
  }
#endif
}
