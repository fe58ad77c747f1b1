#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "gpu/library.h"
#include "support/gpus.h"
#include "support/skip.h"

#include <unistd.h>

namespace {

std::vector<std::string> skipped;

/// The closing line that every test program of the project prints: `N passed, N failed, N skipped`.
struct ClosingLine : doctest::IReporter {
  explicit ClosingLine(const doctest::ContextOptions&) {}
  int passed = 0, failed = 0;
  size_t skipped_before = 0;

  void test_case_start(const doctest::TestCaseData&) override { skipped_before = skipped.size(); }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (stats.failure_flags != 0)
      ++failed;
    else if (skipped.size() == skipped_before)
      ++passed;
  }
  void test_run_end(const doctest::TestRunStats&) override {
    for (const std::string& reason : skipped) fmt::print("skipped: {}\n", reason);
    fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped.size());
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

}  // namespace

REGISTER_LISTENER("closing", 0, ClosingLine);

/// Leaks are looked for only where no driver was loaded: drivers leak, and the check crashes on their
/// unloaded threads.
extern "C" int __lsan_is_turned_off();  // NOLINT: the sanitizer's own name
int __lsan_is_turned_off() {            // NOLINT
  return weft::gpu::Library::any_opened();
}

namespace weft::test {

void skip(const std::string& reason) {
  skipped.push_back(reason);
}

}  // namespace weft::test

int main(int argc, char** argv) {
  // Tests neither read nor fill the user's cache.
  const std::filesystem::path cache =
      std::filesystem::temp_directory_path() / fmt::format("weft-tests-{}", getpid());
  setenv("WEFT_CACHE", cache.c_str(), 1);
  for (const char* name : {"WEFT_DEVICE", "DEVICE", "WEFT_WEBGPU_LIB", "WEFT_FAULT", "WEFT_GPU_DISABLE"})
    unsetenv(name);
  doctest::Context context(argc, argv);
  context.setOption("minimal", true);
  context.setOption("no-path-filenames", true);
  const int status = context.run();
  weft::test::close_gpus();
  std::filesystem::remove_all(cache);
  return status;
}
