// What the GPU layer itself costs, on every adapter of every library: submits, dispatches, readbacks,
// uploads, and the copy bandwidth that kernels are later measured against. One row per measurement, median of
// repeats.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "backend/select.h"
#include "backend/webgpu/webgpu_backend.h"
#include "gpu/probe.h"
#include "gpu/recorder.h"
#include "term.h"

namespace {

using namespace weft;

constexpr std::string_view kTouch = R"(
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
struct Params { add: u32, }
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) { words[i] += params.add; }
)";

constexpr std::string_view kCopy = R"(
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> copied: array<vec4<u32>>;
struct Params { row: u32, }  // invocations in one row of the grid
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.y * params.row + id.x;
  copied[i] = source[i];
}
)";

double median_us(int repeats, const std::function<void()>& step) {
  step();  // warm-up
  std::vector<double> us;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(us, us.begin() + repeats / 2);
  return us[static_cast<size_t>(repeats) / 2];
}

/// Records `dispatches` small dependent dispatches, submits and waits.
void touch(gpu::Device& device, const gpu::Kernel& kernel, const gpu::Buffer& buffer, int dispatches) {
  gpu::Recorder recorder(device, "touch");
  for (int i = 0; i < dispatches; ++i) recorder.dispatch(kernel, {buffer}, {}, 1u);
  recorder.submit().wait();
}

std::vector<std::string> measure(const DeviceEntry& entry) {
  const std::unique_ptr<Backend> backend = open_device(entry);
  gpu::Device& device = dynamic_cast<WebgpuBackend&>(*backend).device();
  const bool software = entry.adapter.type == gpu::AdapterType::cpu;
  const gpu::Kernel kernel = device.kernel({.name = "touch", .wgsl = kTouch});
  const gpu::Buffer small = device.alloc(4096, "small");

  const double one = median_us(101, [&] { touch(device, kernel, small, 1); });
  const double thousand = median_us(11, [&] { touch(device, kernel, small, 1000); });
  std::array<std::byte, 4096> bytes;
  const double readback = median_us(101, [&] { device.read(small, 0, bytes); });

  const uint64_t large =
      std::min<uint64_t>(software ? 64 << 20 : 1 << 30, device.limits().max_binding_size / 2 / 65536 * 65536);
  const auto fill = [](std::span<std::byte> to) { std::fill(to.begin(), to.end(), std::byte{1}); };
  const double upload = median_us(3, [&] { device.upload(large, "upload", fill); });

  const gpu::Kernel copy = device.kernel({.name = "copy", .wgsl = kCopy});
  const gpu::Buffer from = device.upload(large, "from", fill), to = device.alloc(large, "to");
  const auto groups = static_cast<uint32_t>(large / 4096);
  const uint32_t columns = std::min(groups, 16'384u);
  constexpr int kCopies = 10;
  const double copying = median_us(5, [&] {
    gpu::Recorder recorder(device, "copy");
    for (int i = 0; i < kCopies; ++i)
      recorder.dispatch(copy, {from, to}, {columns, groups / columns}, columns * 256);
    recorder.submit().wait();
  });
  const auto gigabytes = static_cast<double>(large) / 1e9;
  return {entry.id,
          entry.name,
          entry.library.implementation + " " + entry.library.version,
          fmt::format("{:.0f}", one),
          fmt::format("{:.2f}", (thousand - one) / 999),
          fmt::format("{:.0f}", readback),
          fmt::format("{:.1f}", gigabytes / upload * 1e6),
          fmt::format("{:.0f}", 2 * kCopies * gigabytes / copying * 1e6)};
}

}  // namespace

int main() {
  term::Table table({"device", "adapter", "library", "submit us", "dispatch us", "read 4 KiB us",
                     "upload GB/s", "copy GB/s"});
  for (const DeviceEntry& entry : list_devices(gpu::probe_all()))
    if (!entry.is_cpu()) table.add(measure(entry));
  fmt::print("{}", table.text(term::colours(stdout)));
}
