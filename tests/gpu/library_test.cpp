#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/child.h"
#include "base/paths.h"
#include "gpu/probe.h"
#include "gpu/recorder.h"
#include "support/gpus.h"
#include "support/program.h"
#include "support/skip.h"

using namespace weft;
using namespace std::chrono_literals;
using test::run_weft;

namespace {

const std::string kStubs = WEFT_STUB_DIR "/libweft_stub_";

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// `weft doctor --test --json` with one library: its report, and the self-test of its adapter.
void check_self_test(const std::string& name, const std::string& path) {
  const test::Output out = run_weft({"doctor", "--test", "--json"}, {{"WEFT_WEBGPU_LIB", path}});
  CAPTURE(name);
  CAPTURE(out.text);
  CHECK((out.status == 0 || out.status == 1));  // 1: the adapter is a software one
  const auto report = nlohmann::json::parse(out.text);
  REQUIRE(report["libraries"].size() == 1);
  CHECK(report["libraries"][0]["status"] == "usable");
  CHECK(contains(name, report["libraries"][0]["implementation"].get<std::string>()));
  int tested = 0;
  for (const auto& test : report["self_test"]) {
    CHECK(test["passed"] == true);
    tested += test["library"] == path;
  }
  CHECK(tested == 1);
}

}  // namespace

TEST_SUITE("gpu libraries") {
  TEST_CASE("every supported library passes the self-test") {
    for (const test::TestLibrary& library : test::libraries()) {
      if (!library.supported) continue;
      if (std::filesystem::exists(library.path))
        check_self_test(library.name, library.path);
      else
        test::skip(library.name + " is not fetched");
    }
  }

  TEST_CASE("a library's file name means nothing") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("weft-names-{}", getpid());
    std::filesystem::create_directories(folder);
    const std::filesystem::path copy = folder / "libwebgpu_dawn.so";
    std::filesystem::copy_file(WEFT_SOURCE_DIR "/build/webgpu/libwgpu_native.so", copy);
    check_self_test("wgpu-native 29", copy.string());
    std::filesystem::remove_all(folder);
  }

  TEST_CASE("libraries of 2024 are refused with one clear line") {
    for (const test::TestLibrary& library : test::libraries()) {
      if (library.supported) continue;
      if (!std::filesystem::exists(library.path)) {
        test::skip(library.name + " is not fetched");
        continue;
      }
      const gpu::LibraryReport report = gpu::probe_library(library.path);
      CAPTURE(report.message);
      CHECK(report.status == gpu::LibraryStatus::refused);
      CHECK(contains(report.message, "speaks the WebGPU API of 2024"));
      CHECK(contains(report.message, "install wgpu-native 24 or newer, or Dawn of April 2025 or newer"));
      CHECK_FALSE(contains(report.message, "\n"));
      if (library.name == "wgpu-native 22") CHECK(contains(report.message, "is wgpu-native 22.1.0.5"));
    }
  }

  TEST_CASE("what is not a WebGPU library is named as such") {
    CHECK(gpu::probe_library("/nonexistent/lib.so").status == gpu::LibraryStatus::unloadable);
    CHECK(contains(gpu::probe_library("/nonexistent/lib.so").message, "cannot load /nonexistent/lib.so"));
    CHECK(contains(gpu::probe_library(kStubs + "silent.so").message, "is not a WebGPU library"));
    CHECK(gpu::probe_library(WEFT_SOURCE_DIR "/README.md").status == gpu::LibraryStatus::unloadable);
  }

  TEST_CASE("a driver that crashes or hangs on first contact becomes a report") {
    const test::Output out = test::run_test_alone("alone: first contact");
    CAPTURE(out.text);
    CHECK(contains(out.text, " passed, 0 failed"));
  }

  TEST_CASE("alone: first contact" * doctest::skip()) {
    const gpu::LibraryReport crashed = gpu::probe_library(kStubs + "crash.so");
    CHECK(crashed.status == gpu::LibraryStatus::crashed);
    CHECK(contains(crashed.message, "signal 6"));

    const gpu::LibraryReport hung = gpu::probe_library(kStubs + "hang.so", {.deadline = 300ms});
    CHECK(hung.status == gpu::LibraryStatus::timed_out);
    CHECK(contains(hung.message, "no answer within 0.3 s"));
  }

  TEST_CASE("what first contact found is remembered, good or bad, and doctor looks again") {
    const std::filesystem::path cache =
        std::filesystem::temp_directory_path() / fmt::format("weft-remember-{}", getpid());
    const std::map<std::string, std::string> environment = {{"WEFT_WEBGPU_LIB", kStubs + "crash.so"},
                                                            {"WEFT_CACHE", cache.string()}};
    CHECK(contains(run_weft({"devices", "--json"}, environment).text, "signal 6"));
    std::filesystem::path file;
    for (const auto& entry : std::filesystem::directory_iterator(cache / "probe")) file = entry.path();
    std::string text = read_text(file).value();
    text.replace(text.find("signal 6"), 8, "remember");
    write_text(file, text);
    CHECK(contains(run_weft({"devices", "--json"}, environment).text, "remember"));
    CHECK(contains(run_weft({"doctor", "--json"}, environment).text, "signal 6"));
    CHECK(contains(run_weft({"devices", "--json"}, environment).text, "signal 6"));
    write_text(file, "{ not a report");
    CHECK(contains(run_weft({"devices", "--json"}, environment).text, "signal 6"));
    std::filesystem::remove_all(cache);
  }

  TEST_CASE("the fingerprint changes with the driver's choice") {
    const std::string before = gpu::driver_fingerprint(kStubs + "crash.so");
    CHECK(before == gpu::driver_fingerprint(kStubs + "crash.so"));
    const char* old = std::getenv("VK_DRIVER_FILES");
    const std::string saved = old ? old : "";
    setenv("VK_DRIVER_FILES", "/another/icd.json", 1);
    CHECK(gpu::driver_fingerprint(kStubs + "crash.so") != before);
    old ? setenv("VK_DRIVER_FILES", saved.c_str(), 1) : unsetenv("VK_DRIVER_FILES");
    CHECK(gpu::driver_fingerprint(kStubs + "hang.so") != before);
  }

  TEST_CASE("a library without an adapter is no error of the process") {
    for (const test::TestLibrary& library : test::libraries()) {
      if (!library.supported || !std::filesystem::exists(library.path)) continue;
      CAPTURE(library.name);
      const test::Output out = run_weft({"devices", "--json"}, {{"WEFT_WEBGPU_LIB", library.path},
                                                                {"VK_DRIVER_FILES", "/nonexistent.json"}});
      CAPTURE(out.text);
      CHECK(out.status == 0);
      const auto json = nlohmann::json::parse(out.text);
      CHECK(json["selected"] == "cpu");
      CHECK(json["libraries"][0]["adapters"].empty());
      CHECK(contains(json["libraries"][0]["message"].get<std::string>(), "no adapter"));
    }
  }

  TEST_CASE("all libraries work side by side in one process") {
    std::vector<gpu::Device> devices;
    test::on_every_gpu([&](const test::TestGpu& gpu) { devices.push_back(gpu.open()); });
    for (int round = 0; round < 2; ++round)
      for (gpu::Device& device : devices) test::check_device_works(device);
  }
}
