// Products with packed weights: GB/s of weights for few rows of x, GFLOP/s for many; float and 8-bit
// activations. Weights are rotated over copies that no cache holds. Arguments: device (as --device), seconds
// for each row.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "backend/backend.h"
#include "backend/select.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "gpu/probe.h"
#include "ops/shorthand.h"
#include "quant/packing.h"
#include "term.h"

namespace {

using namespace weft;

struct Row {
  std::string_view type;
  int64_t m, n, k;
};

constexpr Row kRows[] = {
    {"q4_0", 1, 576, 576},      {"q4_0", 1, 4096, 4096},   {"q4_0", 1, 14336, 4096},
    {"q4_k", 1, 4096, 4096},    {"q4_k", 1, 14336, 4096},  {"q4_k", 1, 4096, 14336},
    {"q6_k", 1, 4096, 4096},    {"q8_0", 1, 4096, 4096},   {"q8_0", 1, 14336, 4096},
    {"iq4_xs", 1, 4096, 4096},  {"mxfp4", 1, 4096, 4096},  {"q4_k", 4, 4096, 4096},
    {"q4_k", 8, 4096, 4096},    {"q4_k", 64, 4096, 4096},  {"q4_0", 512, 4096, 4096},
    {"q4_k", 512, 4096, 4096},  {"q8_0", 512, 4096, 4096}, {"q4_0", 512, 576, 576},
    {"q4_k", 512, 14336, 4096},
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Operand words(Backend& backend, const Shape& shape, DType dtype, std::mt19937& random) {
  const Operand operand{backend.alloc(static_cast<uint64_t>(element_count(shape)) * 4, "bench"), dtype,
                        Layout::contiguous(shape)};
  std::vector<uint32_t> values(static_cast<size_t>(element_count(shape)));
  // As halves and as floats: numbers below 1, none of them special, nor their products: those below the
  // smallest normal float take Intel's processors a hundred times as long.
  for (uint32_t& v : values) v = (random() & 0x0bff0bff) | 0x30003000;
  backend.write(operand.storage, 0, std::as_bytes(std::span(values)));
  return operand;
}

double median_seconds(double limit, const std::function<void()>& step) {
  step();
  std::vector<double> times;
  for (const auto first = std::chrono::steady_clock::now();
       times.size() < 3 || seconds_since(first) < limit;) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    times.push_back(seconds_since(begin));
  }
  std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

/// Seconds of one step of many.
double measure(Backend& backend, const std::vector<Step>& steps, double limit) {
  std::vector<StoragePtr> storages;
  const auto use = [&](const Operand& operand) {
    if (std::ranges::find(storages, operand.storage) == storages.end()) storages.push_back(operand.storage);
  };
  for (const Step& step : steps) {
    std::ranges::for_each(step.inputs, use);
    std::ranges::for_each(step.outputs, use);
  }
  const std::unique_ptr<Prepared> prepared = backend.prepare(steps, storages, false);
  storages = backend.with_scratch(*prepared, std::move(storages));
  return median_seconds(limit,
                        [&] {
                          backend.run(*prepared, storages, {});
                          backend.synchronize();
                        }) /
         static_cast<double>(steps.size());
}

/// The operands of a row's products: copies of the weights, x in both forms, y.
struct Operands {
  quant::Packing packing;
  Attrs attrs;
  std::vector<Operand> weights;
  Operand x, codes, y;

  Operands(Backend& backend, const Row& row, bool large)
      : packing(quant::type_from_name(row.type), row.n, row.k, 1),
        attrs{{"type", std::string(row.type)}, {"n", row.n}, {"k", row.k}, {"bits", int64_t{16}}} {
    std::mt19937 random(1);
    const auto copies = static_cast<size_t>(std::clamp((large ? 400e6 : 80e6) / bytes(), 1.0, 64.0));
    for (size_t i = 0; i < copies; ++i) weights.push_back(words(backend, {packing.size}, DType::u32, random));
    x = words(backend, {row.m, row.k}, DType::f32, random);
    codes = words(backend, {row.m, row.k / 32 * 20}, DType::u32, random);
    y = words(backend, {row.m, row.n}, DType::f32, random);
  }

  double bytes() const { return static_cast<double>(packing.size) * 4; }
  Step step(std::string_view kernel, size_t i) const {
    return {.kernel = kernel,
            .inputs = {kernel == "qmatmul_codes" ? codes : x, weights[i % weights.size()]},
            .outputs = {y},
            .attrs = &attrs};
  }
};

std::vector<std::string> result(const Row& row, std::string_view what, double seconds, double bytes) {
  const double flops =
      2.0 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k);
  return {std::string(row.type),
          fmt::format("{} x {} x {}", row.m, row.n, row.k),
          std::string(what),
          fmt::format("{:.1f}", seconds * 1e6),
          fmt::format("{:.1f}", bytes / seconds * 1e-9),
          fmt::format("{:.1f}", flops / seconds * 1e-9)};
}

void measure(Backend& backend, const Row& row, bool large, double limit, term::Table& table) {
  const Operands operands(backend, row, large);
  const size_t count = row.m > 8 ? 1 : std::max<size_t>(operands.weights.size(), large ? 64 : 1);
  for (const std::string_view kernel : {"qmatmul_packed", "qmatmul_codes"}) {
    std::vector<Step> steps;
    for (size_t i = 0; i < count; ++i) steps.push_back(operands.step(kernel, i));
    table.add(result(row, kernel, measure(backend, steps, limit), operands.bytes()));
  }
}

void measure_forms(WebgpuBackend& backend, const Row& row, double limit, term::Table& table) {
  const Operands operands(backend, row, true);
  std::vector<StoragePtr> given = {operands.codes.storage, operands.y.storage};
  std::vector<const gpu::Buffer*> buffers = {&webgpu::buffer_of(operands.codes),
                                             &webgpu::buffer_of(operands.y)};
  for (const Operand& w : operands.weights) {
    given.push_back(w.storage);
    buffers.push_back(&webgpu::buffer_of(w));
  }
  for (const int64_t threads : {64, 128, 256})
    for (const int64_t lanes : {8, 16, 32})
      for (const int64_t rows : {1, 2, 4}) {
        webgpu::Tape tape;
        webgpu::Context context(backend.device(), tape, buffers);
        constexpr size_t kCount = 64;
        for (size_t i = 0; i < kCount; ++i)
          webgpu::multiply_packed(context, operands.step("qmatmul_codes", i),
                                  {.threads = threads,
                                   .lanes = lanes,
                                   .rows = rows,
                                   .vectors = row.m,
                                   .ahead = 4,
                                   .beside = true});
        const std::vector<StoragePtr> storages = backend.with_scratch(tape, given);
        const double seconds = median_seconds(limit, [&] {
          backend.run(tape, storages, {});
          backend.synchronize();
        });
        table.add(result(row, fmt::format("threads {} lanes {} rows {}", threads, lanes, rows),
                         seconds / kCount, operands.bytes()));
      }
}

}  // namespace

int main(int argc, char** argv) {
  const DeviceEntry entry = choose_device(argc > 1 ? argv[1] : "auto", list_devices(gpu::probe_all())).device;
  const bool large = !entry.is_cpu() && entry.adapter.type != gpu::AdapterType::cpu;
  const double limit = argc > 2 ? std::atof(argv[2]) : 0.3;
  const std::unique_ptr<Backend> backend = open_device(entry);
  term::Table table({"type", "m x n x k", "form", "us", "GB/s", "GFLOP/s"});
  if (argc > 3 && std::string_view(argv[3]) == "forms") {
    for (const Row& row :
         {Row{"q4_k", 1, 4096, 4096}, Row{"q4_k", 1, 14336, 4096}, Row{"q8_0", 1, 4096, 4096}})
      measure_forms(dynamic_cast<WebgpuBackend&>(*backend), row, limit, table);
  } else {
    for (const Row& row : kRows) measure(*backend, row, large, limit, table);
  }
  fmt::print("{} {}\n{}", entry.name, entry.library.implementation, table.text(term::colours(stdout)));
}
