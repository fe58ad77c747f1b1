#include <doctest/doctest.h>

#include "support/gpus.h"
#include "support/program.h"
#include "support/skip.h"

#include <filesystem>

using namespace weft;

namespace {

const std::string kSuite = WEFT_SOURCE_DIR "/tests/data/ops/suite.json";

/// The whole suite passes, and only i64 may be skipped (WGSL has none): there is no i64 in it.
void check_suite(const std::string& device, const std::map<std::string, std::string>& environment = {}) {
  const test::Output out = test::run_weft({"conform", kSuite, "--device", device}, environment);
  CAPTURE(out.errors);
  CAPTURE(out.text);
  CHECK(out.status == 0);
  CHECK(out.text.find("946 passed, 0 failed, 0 skipped") != std::string::npos);
}

}  // namespace

TEST_SUITE("conformance") {
  TEST_CASE("every op and gradient on the CPU") {
    check_suite("cpu");
  }

  TEST_CASE("every op and gradient through every WebGPU library") {
    for (const test::TestLibrary& library : test::libraries()) {
      if (!library.supported) continue;
      CAPTURE(library.name);
      if (std::filesystem::exists(library.path))
        check_suite("webgpu", {{"WEFT_WEBGPU_LIB", library.path}});
      else
        test::skip(library.name + " is not fetched");
    }
  }

  TEST_CASE("the same without f16, subgroups and subgroup matrices") {
    for (const test::TestLibrary& library : test::libraries()) {
      if ((library.name != "Dawn 2026" && library.name != "wgpu-native 29") ||
          !std::filesystem::exists(library.path))
        continue;
      CAPTURE(library.name);
      check_suite("webgpu",
                  {{"WEFT_WEBGPU_LIB", library.path}, {"WEFT_GPU_DISABLE", "f16,subgroups,subgroup_matrix"}});
    }
  }

  TEST_CASE("a filter picks cases, and wrong suites are one clear line") {
    const test::Output some = test::run_weft({"conform", kSuite, "--device", "cpu", "--filter", "softmax/*"});
    CHECK(some.status == 0);
    CHECK(some.text.find("6 passed, 0 failed, 0 skipped") != std::string::npos);
    const test::Output none = test::run_weft({"conform", "/nonexistent.json", "--device", "cpu"});
    CHECK(none.status == 1);
    CHECK(none.errors.find("/nonexistent.json") != std::string::npos);
  }
}
