#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <random>

#include "base/paths.h"
#include "gpu/elf.h"
#include "support/gpus.h"
#include "support/skip.h"
#include "weft/error.h"

#include <unistd.h>

using namespace weft;

namespace {

/// Reads everything an ElfFile offers; true when the file was accepted.
bool survives(const std::filesystem::path& file) {
  try {
    const gpu::ElfFile elf(file);
    elf.functions("wgpu");
    elf.strong_imports("napi_");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_SUITE("base: gpu elf") {
  TEST_CASE("the symbol table of Dawn's Node addon") {
    const std::string addon = WEFT_SOURCE_DIR "/build/webgpu/dawn.node";
    if (!std::filesystem::exists(addon)) return test::skip("Dawn 2026 is not fetched");
    const gpu::ElfFile elf(addon);
    CHECK(elf.functions("wgpu").contains("wgpuCreateInstance"));
    CHECK(elf.functions("dawnProcSetProcs").size() == 1);
    CHECK_FALSE(elf.strong_imports("napi_").empty());
    CHECK(elf.functions("no such prefix").empty());
  }

  TEST_CASE("damaged files are refused, never read past their end") {
    const std::string original = read_text("/proc/self/exe").value();
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / fmt::format("weft-elf-{}", getpid());
    for (size_t size : {0, 1, 4, 16, 63, 64, 100, 4096}) {
      write_text(file, original.substr(0, size));
      CHECK_FALSE(survives(file));
    }
    // Any damage to the headers and section table must be survived; whether it is noticed depends on where it
    // hits.
    std::mt19937 random(7);
    const std::string small = read_text(WEFT_STUB_DIR "/libweft_stub_crash.so").value();
    for (int round = 0; round < 300; ++round) {
      std::string damaged = small;
      for (int hits = 0; hits < 8; ++hits) {
        const bool header = hits % 2 == 0;
        const size_t range = header ? 64 : std::min<size_t>(small.size(), 4096);
        const size_t at = header ? random() % range : small.size() - 1 - random() % range;
        damaged[at] = static_cast<char>(random());
      }
      write_text(file, damaged);
      survives(file);
    }
    std::filesystem::remove(file);
    CHECK_FALSE(survives("/nonexistent"));
  }
}
