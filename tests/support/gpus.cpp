#include "support/gpus.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>
#include <optional>

#include "gpu/probe.h"
#include "gpu/recorder.h"
#include "support/skip.h"
#include "weft/error.h"

namespace weft::test {
namespace {

/// Reports of all libraries, made before any of them is opened here.
const std::map<std::string, gpu::LibraryReport>& reports() {
  static const auto all = [] {
    std::map<std::string, gpu::LibraryReport> made;
    for (const TestLibrary& library : libraries())
      if (library.supported && std::filesystem::exists(library.path))
        made[library.path] = gpu::probe_library(library.path);
    return made;
  }();
  return all;
}

std::optional<TestGpu> find_gpu(const TestLibrary& library) {
  const gpu::LibraryReport& report = reports().at(library.path);
  INFO(report.message);
  REQUIRE(report.usable());
  if (report.adapters.empty()) return std::nullopt;
  INFO(report.adapters[0].error);
  REQUIRE(report.adapters[0].usable());
  for (const gpu::Adapter& adapter : gpu::Library::open(library.path).adapters())
    if (adapter.info().name == report.adapters[0].name)
      return TestGpu{library, adapter, report.adapters[0].features};
  return std::nullopt;
}

std::map<std::string, std::optional<TestGpu>>& opened() {
  static std::map<std::string, std::optional<TestGpu>> gpus;
  return gpus;
}

}  // namespace

void close_gpus() {
  opened().clear();
}

const std::vector<TestLibrary>& libraries() {
  const std::string run = WEFT_SOURCE_DIR "/build/webgpu/", test = WEFT_SOURCE_DIR "/build/webgpu-test/";
  static const std::vector<TestLibrary> list = {
      {"Dawn 2026", run + "dawn.node"},
      {"Dawn 2025", test + "dawn-2025.so"},
      {"wgpu-native 29", run + "libwgpu_native.so"},
      {"wgpu-native 27", test + "wgpu-native-27.so"},
      {"wgpu-native 24", test + "wgpu-native-24.so"},
      {"Dawn 2024", test + "dawn-2024.so", false},
      {"wgpu-native 22", test + "wgpu-native-0.19.so", false},
  };
  return list;
}

void on_every_gpu(const std::function<void(const TestGpu&)>& body) {
  auto& gpus = opened();
  for (const TestLibrary& library : libraries()) {
    if (!library.supported) continue;
    CAPTURE(library.name);
    if (!std::filesystem::exists(library.path)) {
      skip(library.name + " is not fetched");
      continue;
    }
    if (!gpus.contains(library.path)) gpus[library.path] = find_gpu(library);
    if (const auto& gpu = gpus[library.path])
      body(*gpu);
    else
      skip(library.name + " finds no adapter");
  }
}

Caught error_of(const std::function<void()>& call) {
  static constexpr const char* kKinds[] = {"invalid", "unsupported", "memory", "lost", "timeout", "io"};
  try {
    call();
  } catch (const Error& e) {
    return {kKinds[static_cast<int>(e.kind())], e.what()};
  }
  FAIL_CHECK("no error was thrown");
  return {};
}

void check_device_works(gpu::Device& device) {
  const gpu::Kernel kernel = device.kernel({.name = "works", .wgsl = R"(
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    struct Params { scale: u32, add: i32, }
    @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
      out[i] = u32(i32(i * params.scale) + params.add);
    })"});
  const gpu::Buffer out = device.alloc(64 * 4, "works");
  struct {
    uint32_t scale = 3;
    int32_t add = -1;
  } params;
  gpu::Recorder recorder(device, "works");
  recorder.dispatch(kernel, {out}, {}, params);
  recorder.submit();
  std::array<uint32_t, 64> words{};
  device.read(out, 0, std::as_writable_bytes(std::span(words)));
  for (uint32_t i = 0; i < words.size(); ++i) CHECK(words[i] == 3 * i - 1);
}

}  // namespace weft::test
