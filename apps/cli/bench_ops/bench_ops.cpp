#include "bench_ops/bench_ops.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "array/host_tensor.h"
#include "backend/select.h"
#include "base/error.h"
#include "base/standard_error.h"
#include "bench_ops/cases.h"
#include "bench_ops/copy.h"
#include "bench_ops/timing.h"
#include "gpu/probe.h"
#include "ops/shorthand.h"
#include "term.h"

namespace weft::bench_ops {
namespace {

Array random_array(const Input& input, const Device& device) {
  constexpr size_t kDistinct = 1'048'573;  // a prime: repeated, but never in step with a row
  std::mt19937 random(1);
  const auto count = static_cast<size_t>(element_count(input.shape));
  HostTensor host{.dtype = input.dtype == DType::i32 ? DType::i32 : DType::f32,
                  .shape = input.shape,
                  .bytes = std::vector<std::byte>(count * 4)};
  const size_t distinct = std::min(count, kDistinct);
  for (size_t i = 0; i < distinct; ++i) {
    const auto index = static_cast<int32_t>(random() % std::max<int64_t>(input.below, 1));
    const float value = static_cast<float>(random()) * 0x1p-31f - 1;
    std::memcpy(host.bytes.data() + 4 * i,
                host.dtype == DType::i32 ? static_cast<const void*>(&index) : &value, 4);
  }
  for (size_t i = distinct; i < count; i += distinct)
    std::memcpy(host.bytes.data() + 4 * i, host.bytes.data(), 4 * std::min(distinct, count - i));
  const Array array = as(Array::from_host(host, device), input.dtype);
  eval(array);
  return array;
}

struct Result {
  std::string name;
  DType dtype;
  bool is_matmul;
  double seconds, bytes, flops;
  double copy;  // bytes per second at that time
};

double bytes_of(const std::vector<Array>& arrays) {
  double bytes = 0;
  for (const Array& a : arrays)
    bytes += static_cast<double>(a.size()) * static_cast<double>(size_of(a.dtype()));
  return bytes;
}

/// What is not bound by arithmetic takes turns with the copy.
Result measure(const Case& c, const Device& device, Copy& copy, double last_copy) {
  std::vector<Array> inputs;
  for (const Input& input : c.inputs) inputs.push_back(random_array(input, device));
  const double bytes = c.bytes > 0 ? c.bytes : bytes_of(inputs) + bytes_of(c.compute(inputs));
  const auto step = [&] { eval(c.compute(inputs)); };
  double seconds = 0, copied = last_copy;
  if (c.flops == 0) {
    const auto [own, copys] = median_turn(device.backend(), step, [&] { copy.run(); });
    seconds = own;
    copied = copy.bytes() / copys;
  } else {
    seconds = median_seconds(device.backend(), step);
  }
  return {c.name, c.inputs[0].dtype, c.name.starts_with("matmul"), seconds, bytes, c.flops, copied};
}

/// What the results are shares of.
struct Peaks {
  double copy = 0;                 // bytes per second, the fastest of the run
  std::map<DType, double> matmul;  // flops per second, the fastest of the run

  static double of_copy(const Result& r) { return r.bytes / r.seconds / r.copy; }
  double of_matmul(const Result& r) const {
    const auto best = matmul.find(r.dtype);
    return r.flops > 0 && best != matmul.end() ? r.flops / r.seconds / best->second : 0;
  }
};

void print_table(const std::vector<Result>& results, const Peaks& peaks) {
  term::Table table({"case", "time", "GB/s", "GFLOP/s", "share of peak"});
  for (const Result& r : results) {
    const double memory = Peaks::of_copy(r), compute = peaks.of_matmul(r);
    table.add({r.name,
               r.seconds < 1e-3 ? fmt::format("{:.1f} us", r.seconds * 1e6)
                                : fmt::format("{:.2f} ms", r.seconds * 1e3),
               fmt::format("{:.1f}", r.bytes / r.seconds * 1e-9),
               r.flops > 0 ? fmt::format("{:.1f}", r.flops / r.seconds * 1e-9) : "",
               compute > memory ? fmt::format("{:.0f} % of matmul", compute * 100)
                                : fmt::format("{:.0f} % of copy", memory * 100)});
  }
  fmt::print("{}", table.text(term::colours(stdout)));
}

void print_json(const DeviceEntry& entry, const std::vector<Result>& results, const Peaks& peaks) {
  nlohmann::json out = {{"device", entry.id}, {"name", entry.name}, {"copy_gb_s", peaks.copy * 1e-9}};
  for (const auto& [dtype, speed] : peaks.matmul)
    out["matmul_gflop_s"][std::string(name_of(dtype))] = speed * 1e-9;
  out["cases"] = nlohmann::json::array();
  for (const Result& r : results)
    out["cases"].push_back({{"name", r.name},
                            {"us", r.seconds * 1e6},
                            {"gb_s", r.bytes / r.seconds * 1e-9},
                            {"gflop_s", r.flops / r.seconds * 1e-9},
                            {"of_copy", Peaks::of_copy(r)},
                            {"of_matmul", peaks.of_matmul(r)}});
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// On a terminal: which case is being measured, in one line that is overwritten.
void show_progress(std::string_view name) {
  if (isatty(STDERR_FILENO)) to_stderr("\r\033[K{}", name);
}

}  // namespace

int run(const Options& options) {
  const std::string wanted = device_wish(options.device).value;
  const DeviceEntry entry = choose_device(wanted, list_devices(gpu::probe_all())).device;
  const bool large = !entry.is_cpu() && entry.adapter.type != gpu::AdapterType::cpu;
  std::vector<Case> chosen = cases(large);
  std::erase_if(chosen, [&](const Case& c) {
    return !options.filter.empty() && fnmatch(options.filter.c_str(), c.name.c_str(), 0) != 0;
  });
  if (chosen.empty())
    fail(ErrorKind::invalid, "[bench-ops] no case is called '{}'; names look like 'matmul f32 *'",
         options.filter);

  const Device device(open_device(entry));
  Copy copy(device.backend(), large);
  double speed = copy.speed();
  Peaks peaks{.copy = speed};
  std::vector<Result> results;
  for (const Case& c : chosen) {
    show_progress(c.name);
    results.push_back(measure(c, device, copy, speed));
    const Result& r = results.back();
    peaks.copy = std::max(peaks.copy, speed = r.copy);
    if (r.is_matmul) peaks.matmul[r.dtype] = std::max(peaks.matmul[r.dtype], r.flops / r.seconds);
  }
  show_progress("");
  if (options.json) {
    print_json(entry, results, peaks);
  } else {
    fmt::print("{} ({}), a copy runs at {:.1f} GB/s read and written\n", entry.id, entry.name,
               peaks.copy * 1e-9);
    print_table(results, peaks);
  }
  return 0;
}

}  // namespace weft::bench_ops
