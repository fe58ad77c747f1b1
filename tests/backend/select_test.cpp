#include "backend/select.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "support/gpus.h"

using namespace weft;
using gpu::AdapterType;
using test::error_of;

namespace {

gpu::AdapterReport adapter(std::string name, AdapterType type, std::string driver = "driver 1.0") {
  gpu::AdapterReport report;
  report.name = std::move(name);
  report.driver = std::move(driver);
  report.backend = "Vulkan";
  report.type = type;
  return report;
}

gpu::LibraryReport library(std::string implementation, std::vector<gpu::AdapterReport> adapters) {
  gpu::LibraryReport report;
  report.path = "/lib/" + implementation;
  report.implementation = std::move(implementation);
  report.adapters = std::move(adapters);
  return report;
}

/// Every type through two libraries, in no good order.
std::vector<DeviceEntry> many() {
  return list_devices(
      {library("Dawn", {adapter("llvmpipe (LLVM 19)", AdapterType::cpu),
                        adapter("Mystery 3000", AdapterType::unknown),
                        adapter("GeForce RTX 4090", AdapterType::discrete, "NVIDIA 570")}),
       library("wgpu-native", {adapter("Radeon 780M", AdapterType::integrated, "radv Mesa 25"),
                               adapter("GeForce RTX 4090", AdapterType::discrete, "NVIDIA 570"),
                               adapter("llvmpipe (LLVM 19)", AdapterType::cpu)})});
}

std::vector<std::string> names(const std::vector<DeviceEntry>& devices) {
  std::vector<std::string> list;
  for (const DeviceEntry& d : devices)
    list.push_back(d.is_cpu() ? "CPU" : d.name + " / " + d.library.implementation);
  return list;
}

class Set {
 public:
  Set(std::string name, const char* value) : name_(std::move(name)) {
    value ? setenv(name_.c_str(), value, 1) : unsetenv(name_.c_str());
  }
  ~Set() { unsetenv(name_.c_str()); }  // main() unsets the variables of this test for all tests
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  std::string name_;
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("base: select") {
  TEST_CASE("best first: discrete, integrated, unknown, software; then the CPU backend") {
    const std::vector<DeviceEntry> devices = many();
    CHECK(names(devices) ==
          std::vector<std::string>{"GeForce RTX 4090 / Dawn", "GeForce RTX 4090 / wgpu-native",
                                   "Radeon 780M / wgpu-native", "Mystery 3000 / Dawn",
                                   "llvmpipe (LLVM 19) / Dawn", "llvmpipe (LLVM 19) / wgpu-native", "CPU"});
    for (size_t i = 0; i + 1 < devices.size(); ++i) {
      CHECK(devices[i].id == "webgpu:" + std::to_string(i));
      CHECK(devices[i].index == static_cast<int>(i));
      CHECK(devices[i].library.adapters.empty());
    }
    CHECK(devices.back().id == "cpu");
    CHECK(devices.back().index == -1);
    CHECK_FALSE(devices.back().name.empty());
  }

  TEST_CASE("without libraries or adapters there is still the CPU") {
    CHECK(names(list_devices({})) == std::vector<std::string>{"CPU"});
    CHECK(names(list_devices({library("Dawn", {})})) == std::vector<std::string>{"CPU"});
  }

  TEST_CASE("adapters that cannot be used are left out, and take no number") {
    gpu::AdapterReport broken = adapter("Broken", AdapterType::discrete);
    broken.error = "[gpu] Broken computes wrong results";
    const auto devices = list_devices({library("Dawn", {broken, adapter("Good", AdapterType::integrated)})});
    CHECK(names(devices) == std::vector<std::string>{"Good / Dawn", "CPU"});
    CHECK(devices[0].id == "webgpu:0");
    CHECK(error_of([&] { choose_device("webgpu:broken", devices); }).kind == "invalid");
  }

  TEST_CASE("of adapters that look the same each is told apart within its library") {
    gpu::AdapterReport broken = adapter("Twin", AdapterType::discrete);
    broken.error = "does not answer";
    const auto devices = list_devices(
        {library("Dawn", {adapter("Twin", AdapterType::discrete), adapter("Other", AdapterType::integrated)}),
         library("wgpu-native",
                 {adapter("Twin", AdapterType::discrete), broken, adapter("Twin", AdapterType::discrete)})});
    REQUIRE(devices.size() == 5);
    CHECK(devices[0].twin == 0);
    CHECK(devices[1].twin == 0);
    CHECK(devices[2].twin == 2);  // the broken one keeps its place: opening counts what the library lists
    CHECK(devices[3].twin == 0);
  }

  TEST_CASE("auto takes the best GPU") {
    CHECK(choose_device("auto", many()).device.id == "webgpu:0");
    CHECK(contains(choose_device("auto", many()).reason, "discrete GPU"));
    for (AdapterType type : {AdapterType::integrated, AdapterType::unknown}) {
      const auto devices =
          list_devices({library("Dawn", {adapter("llvmpipe", AdapterType::cpu), adapter("GPU", type)})});
      CHECK(choose_device("auto", devices).device.name == "GPU");
    }
  }

  TEST_CASE("auto takes the CPU backend when there is no GPU, and says why") {
    const auto software = list_devices({library("Dawn", {adapter("llvmpipe", AdapterType::cpu)})});
    CHECK(choose_device("auto", software).device.is_cpu());
    CHECK(contains(choose_device("auto", software).reason, "software"));
    CHECK(choose_device("webgpu", software).device.id == "webgpu:0");  // asked for, so given
    const auto nothing = list_devices({});
    CHECK(choose_device("auto", nothing).device.is_cpu());
    CHECK(choose_device("auto", nothing).reason == "no WebGPU adapter can be used");
  }

  TEST_CASE("cpu and webgpu") {
    CHECK(choose_device("cpu", many()).device.is_cpu());
    CHECK(choose_device("CPU", many()).device.is_cpu());
    CHECK(choose_device("webgpu", many()).device.id == "webgpu:0");
    CHECK(choose_device("WebGPU", many()).device.id == "webgpu:0");
    CHECK(error_of([] { choose_device("webgpu", list_devices({})); }).kind == "invalid");
  }

  TEST_CASE("webgpu:N") {
    for (int i = 0; i < 6; ++i) CHECK(choose_device("webgpu:" + std::to_string(i), many()).device.index == i);
    CHECK(choose_device("WEBGPU:2", many()).device.index == 2);
    for (const char* bad : {"webgpu:6", "webgpu:-1", "webgpu:99999999999999999999", "webgpu:00"}) {
      CAPTURE(bad);
      CHECK(error_of([&] { choose_device(bad, many()); }).kind == "invalid");
    }
  }

  TEST_CASE("webgpu:NAME: a part of the adapter's, driver's or library's name, in any case") {
    const auto id = [](const char* wanted) { return choose_device(wanted, many()).device.id; };
    CHECK(id("webgpu:radeon") == "webgpu:2");
    CHECK(id("webgpu:RTX 4090") == "webgpu:0");
    CHECK(id("webgpu:llvmpipe") == "webgpu:4");
    CHECK(id("webgpu:RADV") == "webgpu:2");
    CHECK(id("webgpu:wgpu") == "webgpu:1");
    CHECK(id("WebGPU:Dawn") == "webgpu:0");
    CHECK(choose_device("webgpu:Radeon", many()).reason == "its name matches 'radeon'");
  }

  TEST_CASE("an unknown device is an error that lists those there are") {
    for (const char* bad : {"cuda", "webgpu:voodoo", "webgpu:", "gpu", "", "webgpu0", "cpu:0"}) {
      CAPTURE(bad);
      const auto caught = error_of([&] { choose_device(bad, many()); });
      CHECK(caught.kind == "invalid");
      CHECK(contains(caught.message, std::string("[device] no device '") + bad + "'; there are: "));
      CHECK(contains(caught.message, "webgpu:0 (GeForce RTX 4090), "));
      CHECK(contains(caught.message, "webgpu:5 (llvmpipe (LLVM 19)), cpu ("));
      CHECK(contains(caught.message, "Or: auto, webgpu, webgpu:NAME"));
    }
  }

  TEST_CASE("WEFT_DEVICE speaks before DEVICE") {
    CHECK(device_wish().value == "auto");
    CHECK(device_wish().source == "default");
    const Set second("DEVICE", "webgpu");
    CHECK(device_wish().value == "webgpu");
    CHECK(device_wish().source == "DEVICE");
    {
      const Set first("WEFT_DEVICE", "cpu");
      CHECK(device_wish().value == "cpu");
      CHECK(device_wish().source == "WEFT_DEVICE");
    }
    const Set empty("WEFT_DEVICE", "");
    CHECK(device_wish().source == "DEVICE");
  }
}
