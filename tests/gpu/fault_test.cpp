#include "gpu/fault.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>

#include "gpu/recorder.h"
#include "gpu/truth.h"
#include "support/gpus.h"
#include "support/program.h"

using namespace weft;
using namespace std::chrono_literals;
using test::error_of;

namespace {

gpu::DeviceOptions with_faults(std::vector<std::string> faults, std::chrono::milliseconds deadline = 30s) {
  return {.deadline = deadline, .faults = std::make_shared<gpu::FaultPlan>(faults)};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Enough work to be still running when the next call comes.
gpu::Fence submit_long_work(gpu::Device& device, const gpu::Buffer& buffer) {
  const gpu::Kernel kernel = device.kernel({.name = "long", .wgsl = R"(
    @group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
      var x = id.x;
      for (var i = 0u; i < 20000u; i++) { x = x * 1664525u + 1013904223u; }
      out[id.x] = x;
    })"});
  gpu::Recorder recorder(device, "long work");
  for (int i = 0; i < 20; ++i)
    recorder.dispatch(kernel, {buffer}, {static_cast<uint32_t>(buffer.size() / 256)});
  return recorder.submit();
}

}  // namespace

TEST_SUITE("gpu faults") {
  TEST_CASE("a plan fires once, at its count") {
    gpu::FaultPlan plan({"oom:3", "map_timeout"});
    CHECK_FALSE(plan.fires(gpu::Fault::oom));
    CHECK_FALSE(plan.fires(gpu::Fault::oom));
    CHECK(plan.fires(gpu::Fault::oom));
    CHECK_FALSE(plan.fires(gpu::Fault::oom));
    CHECK(plan.fires(gpu::Fault::map_timeout));
    CHECK_FALSE(plan.fires(gpu::Fault::device_lost));
    CHECK(contains(error_of([] { gpu::FaultPlan({"earthquake"}); }).message,
                   "use device_lost, oom or map_timeout"));
  }

  TEST_CASE("device lost at a submit: the error says so, everything after it too, and a new device works") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(with_faults({"device_lost:2"}));
      const gpu::Buffer buffer = device.alloc(64 * 256, "victim");
      submit_long_work(device, buffer).wait();
      auto caught = error_of([&] { submit_long_work(device, buffer).wait(); });
      CHECK(caught.kind == "lost");
      CHECK(contains(caught.message, "is lost: it was destroyed (injected)"));
      std::byte bytes[4];
      CHECK(error_of([&] { device.read(buffer, 0, bytes); }).kind == "lost");
      CHECK(error_of([&] { device.write(buffer, 0, bytes); }).kind == "lost");
      CHECK(error_of([&] { device.alloc(64, "more"); }).kind == "lost");
      CHECK(error_of([&] { device.kernel({.name = "more", .wgsl = "fn f() {}"}); }).kind == "lost");
      CHECK(error_of([&] { device.synchronize(); }).kind == "lost");
      CHECK(error_of([&] { gpu::Recorder r(device); }).kind == "lost");
      gpu::Device next = gpu.open();
      test::check_device_works(next);
    });
  }

  TEST_CASE("a device destroyed under work and readbacks in flight") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open({.deadline = 10s});
      const gpu::Buffer buffer = device.alloc(64 * 256, "victim");
      const gpu::Fence fence = submit_long_work(device, buffer);
      gpu::Recorder recorder(device);
      gpu::Readback readback = recorder.read(buffer, 0, 64);
      recorder.submit();
      gpu::Recorder recorded(device, "recorded before, submitted after");
      recorded.clear(buffer, 0, 64);
      device.destroy();
      CHECK(error_of([&] { fence.wait(); }).kind == "lost");
      CHECK(error_of([&] { readback.wait(); }).kind == "lost");
      CHECK(error_of([&] { recorded.submit(); }).kind == "lost");
      CHECK(error_of([&] { device.check(); }).kind == "lost");
      gpu::Device next = gpu.open();
      test::check_device_works(next);
    });
  }

  TEST_CASE("handles may outlive their device's last handle, in any order") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Buffer buffer;
      std::optional<gpu::Fence> fence;
      std::optional<gpu::Readback> readback;
      {
        gpu::Device device = gpu.open();
        buffer = device.alloc(64 * 256, "survivor");
        fence = submit_long_work(device, buffer);
        gpu::Recorder recorder(device);
        readback = recorder.read(buffer, 0, 64);
        recorder.submit();
      }
      CHECK(readback->wait().size() == 64);
      fence->wait();
    });
  }

  TEST_CASE("no memory: the error names the buffer, and the next allocation works") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(with_faults({"oom:2"}));
      const gpu::Buffer first = device.alloc(64, "first");
      const auto caught = error_of([&] { device.alloc(4096, "second"); });
      CHECK(caught.kind == "memory");
      CHECK(contains(caught.message, "no memory for buffer 'second' of 4096 bytes"));
      test::check_device_works(device);
    });
  }

  TEST_CASE("an allocation that fails gives the cache back and tries again") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(with_faults({"oom:2"}));
      device.alloc(64, "cached");
      const gpu::Buffer buffer = device.alloc(4096, "second try");
      CHECK(device.counters().bytes_cached == 0);
      CHECK(buffer.size() == 4096);
    });
  }

  TEST_CASE("a map that never completes meets its deadline; a new device works") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open(with_faults({"map_timeout:1"}, 100ms));
      const gpu::Buffer buffer = device.alloc(64, "unreadable");
      std::byte bytes[64];
      const auto caught = error_of([&] { device.read(buffer, 0, bytes); });
      CHECK(caught.kind == "timeout");
      CHECK(contains(caught.message, "readback of buffer 'unreadable'"));
      CHECK(contains(caught.message, "did not complete within 0.1 s"));
      CHECK(error_of([&] { device.read(buffer, 0, bytes); }).kind == "lost");
      gpu::Device next = gpu.open();
      test::check_device_works(next);
    });
  }

  TEST_CASE("work that takes longer than the deadline is given up") {
    const test::Output out = test::run_test_alone("alone: a device that hangs is left behind");
    CAPTURE(out.text);
    CHECK(out.status == 0);
    CHECK(contains(out.text, " passed, 0 failed"));
  }

  TEST_CASE("alone: a device that hangs is left behind" * doctest::skip()) {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Device device = gpu.open({.deadline = 1ms});
      const auto caught = error_of([&] {
        const gpu::Buffer buffer = device.alloc(64 * 4096, "slow");
        submit_long_work(device, buffer).wait();
      });
      CHECK(caught.kind == "timeout");
      CHECK(contains(caught.message, "did not complete within 0.001 s"));
      gpu::Device next = gpu.open();
      test::check_device_works(next);
    });
  }

  TEST_CASE("WEFT_GPU_DISABLE takes features away") {
    gpu::Features all{.f16 = true,
                      .subgroups = true,
                      .dot4 = true,
                      .immediates = true,
                      .timestamps = true,
                      .last_workgroup = true,
                      .lockstep = true,
                      .images = true,
                      .matrices = {{"f16", "f32", 16, 16, 16}, {"i8", "i32", 16, 16, 32}}};
    setenv("WEFT_GPU_DISABLE", "f16", 1);
    CHECK_FALSE(gpu::enabled_features(all).f16);
    CHECK(gpu::enabled_features(all).matrices.size() == 1);
    setenv("WEFT_GPU_DISABLE", "subgroups,timestamps", 1);
    CHECK_FALSE(gpu::enabled_features(all).subgroups);
    CHECK_FALSE(gpu::enabled_features(all).timestamps);
    CHECK(gpu::enabled_features(all).matrices.empty());
    CHECK(gpu::enabled_features(all).f16);
    setenv("WEFT_GPU_DISABLE", "subgroup_matrix,immediates,last_workgroup,lockstep,images", 1);
    CHECK(gpu::enabled_features(all).matrices.empty());
    CHECK_FALSE(gpu::enabled_features(all).immediates);
    CHECK_FALSE(gpu::enabled_features(all).last_workgroup);
    CHECK_FALSE(gpu::enabled_features(all).lockstep);
    CHECK_FALSE(gpu::enabled_features(all).images);
    unsetenv("WEFT_GPU_DISABLE");
    CHECK(gpu::enabled_features(all).matrices.size() == 2);
  }
}
