#include "selftest/selftest.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/child.h"
#include "base/error.h"
#include "gpu/recorder.h"

namespace weft::embedded {
std::string_view selftest_kernels(std::string_view file);
}

namespace weft::selftest {
namespace {

using Floats = std::vector<float>;
constexpr uint32_t kCount = 1 << 20;               // elements of add and gelu
constexpr uint32_t kRows = 1024, kColumns = 1024;  // of the row sum
constexpr uint32_t kSide = 256;                    // of the matmul

Floats random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Floats values(count);
  for (float& v : values) v = uniform(random);
  return values;
}

/// One op: what it computes, how exact it must be, what it costs, and how each backend runs it.
struct Op {
  std::string name;
  std::vector<Floats> inputs;
  size_t output_count;
  double tolerance;
  double work;  // bytes or floating-point operations
  std::string unit;
  gpu::Grid grid;
  uint32_t param;
  std::function<double(size_t)> reference;                    // exact element
  std::function<void(float*, size_t begin, size_t end)> cpu;  // elements [begin, end)
};

std::vector<Op> ops() {
  const Floats a = random_floats(kCount, 1), b = random_floats(kCount, 2);
  const Floats x = random_floats(size_t{kSide} * kSide, 3), y = random_floats(size_t{kSide} * kSide, 4);
  const auto gelu = [](auto v) {
    return v / 2 * (1 + std::tanh(decltype(v)(0.7978845608) * (v + decltype(v)(0.044715) * v * v * v)));
  };
  return {
      {"add",
       {a, b},
       kCount,
       0,
       12.0 * kCount,
       "GB/s",
       {kCount / 256},
       kCount,
       [=](size_t i) { return double(a[i] + b[i]); },
       [=](float* out, size_t begin, size_t end) {
         for (size_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
       }},
      {"gelu",
       {a},
       kCount,
       1e-5,
       8.0 * kCount,
       "GB/s",
       {kCount / 256},
       kCount,
       [=](size_t i) { return gelu(double(a[i])); },
       [=](float* out, size_t begin, size_t end) {
         for (size_t i = begin; i < end; ++i) out[i] = gelu(a[i]);
       }},
      {"sum",
       {a},
       kRows,
       1e-3,
       4.0 * kRows * kColumns,
       "GB/s",
       {kRows},
       kColumns,
       [=](size_t i) {
         double sum = 0;
         for (size_t j = 0; j < kColumns; ++j) sum += a[i * kColumns + j];
         return sum;
       },
       [=](float* out, size_t begin, size_t end) {
         for (size_t i = begin; i < end; ++i) {
           float sum = 0;
           for (size_t j = 0; j < kColumns; ++j) sum += a[i * kColumns + j];
           out[i] = sum;
         }
       }},
      {"matmul",
       {x, y},
       size_t{kSide} * kSide,
       1e-3,
       2.0 * kSide * kSide * kSide,
       "GFLOP/s",
       {kSide / 64, kSide / 64},
       kSide,
       [=](size_t i) {
         double sum = 0;
         for (size_t k = 0; k < kSide; ++k)
           sum += double(x[i / kSide * kSide + k]) * y[k * kSide + i % kSide];
         return sum;
       },
       [=](float* out, size_t begin, size_t end) {
         std::fill(out + begin, out + end, 0.0f);
         for (size_t row = begin / kSide; row < end / kSide; ++row)
           for (size_t k = 0; k < kSide; ++k)
             for (size_t column = 0; column < kSide; ++column)
               out[row * kSide + column] += x[row * kSide + k] * y[k * kSide + column];
       }},
  };
}

/// Calls `step` a few times; seconds of the fastest.
double fastest(const std::function<void()>& step) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

Floats run_on(CpuBackend& backend, const Op& op, double& seconds) {
  Floats out(op.output_count);
  seconds = fastest([&] {
    backend.pool().for_each(out.size(), std::max<size_t>(kSide, out.size() / 16),
                            [&](size_t b, size_t e) { op.cpu(out.data(), b, e); });
  });
  return out;
}

Floats run_on(WebgpuBackend& backend, const Op& op, double& seconds) {
  gpu::Device& device = backend.device();
  const gpu::Kernel kernel = device.kernel({.name = op.name, .wgsl = embedded::selftest_kernels(op.name)});
  std::vector<gpu::Binding> bindings;
  for (const Floats& input : op.inputs)
    bindings.emplace_back(
        device.upload(input.size() * sizeof(float), op.name + " input",
                      [&](std::span<std::byte> to) { std::memcpy(to.data(), input.data(), to.size()); }));
  const gpu::Buffer out = device.alloc(op.output_count * sizeof(float), op.name + " output");
  bindings.emplace_back(out);
  seconds = fastest([&] {
    gpu::Recorder recorder(device, op.name);
    recorder.dispatch(kernel, bindings, op.grid, std::as_bytes(std::span(&op.param, 1)));
    recorder.submit().wait();
  });
  Floats result(op.output_count);
  device.read(out, 0, std::as_writable_bytes(std::span(result)));
  return result;
}

}  // namespace

std::vector<doctor::SelfTestRow> run(Backend& backend) {
  std::vector<doctor::SelfTestRow> rows;
  for (const Op& op : ops()) {
    double seconds = 0;
    auto* cpu = dynamic_cast<CpuBackend*>(&backend);
    const Floats got =
        cpu ? run_on(*cpu, op, seconds) : run_on(dynamic_cast<WebgpuBackend&>(backend), op, seconds);
    doctor::SelfTestRow row{
        .op = op.name, .tolerance = op.tolerance, .value = op.work / seconds / 1e9, .unit = op.unit};
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = std::abs(double(got[i]) - op.reference(i));
      row.max_difference = std::isnan(difference) ? 1e300 : std::max(row.max_difference, difference);
    }
    row.passed = row.max_difference <= row.tolerance;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace weft::selftest

namespace weft::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SelfTestRow, op, max_difference, tolerance, passed, value, unit)

std::vector<SelfTest> run_self_tests(const std::vector<gpu::LibraryReport>& libraries) {
  using namespace std::chrono_literals;
  std::vector<SelfTest> tests;
  for (const DeviceEntry& device : list_devices(libraries)) {
    SelfTest test{.library = device.is_cpu() ? kCpuBackend : device.library.path, .adapter = device.name};
    const ChildResult child =
        run_in_child([&] { return nlohmann::json(selftest::run(*open_device(device))).dump(); }, 60s);
    if (child.done())
      test.rows = nlohmann::json::parse(child.output).get<std::vector<SelfTestRow>>();
    else
      test.error = child.reason;
    tests.push_back(std::move(test));
  }
  return tests;
}

}  // namespace weft::doctor
