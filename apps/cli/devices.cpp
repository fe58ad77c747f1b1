#include "devices.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "backend/select.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/standard_error.h"
#include "gpu/probe.h"
#include "gpu/truth.h"
#include "selftest/selftest.h"
#include "term.h"

namespace weft::cli {
namespace {

using nlohmann::json;

std::string library_name(const gpu::LibraryReport& library) {
  if (!library.version.empty()) return fmt::format("{} {}", library.implementation, library.version);
  return library.abi == "B" ? library.implementation + " (2025)" : library.implementation;
}

std::string matrices_text(const gpu::Features& features) {
  std::string text;
  for (const gpu::MatrixConfig& m : features.matrices)
    text += fmt::format("{}{}->{} {}x{}x{}", text.empty() ? "" : ", ", m.input, m.output, m.m, m.n, m.k);
  return text;
}

std::string features_text(const gpu::Features& f) {
  std::string text;
  const auto add = [&](bool has, const std::string& name) {
    if (has) text += (text.empty() ? "" : " ") + name;
  };
  add(f.f16, "f16");
  add(f.subgroups, f.subgroup_min == f.subgroup_max
                       ? fmt::format("subgroups({})", f.subgroup_min)
                       : fmt::format("subgroups({}-{})", f.subgroup_min, f.subgroup_max));
  add(!f.matrices.empty(), fmt::format("matrices({})", f.matrices.size()));
  add(f.dot4, "dot4");
  add(f.immediates, "immediates");
  add(f.timestamps, "timestamps");
  return text;
}

void print_table(const std::vector<DeviceEntry>& devices, const DeviceChoice& choice) {
  const bool colour = term::colours(stdout);
  term::Table table({"", "device", "name (type) via backend", "library", "features", "submit", "dispatch"});
  for (const DeviceEntry& d : devices) {
    const std::string mark = d.id == choice.device.id ? "*" : "";
    if (d.is_cpu())
      table.add(
          {mark, d.id, fmt::format("{} (CPU, {} threads)", d.name, env::thread_count()), "weft", "", "", ""});
    else
      table.add({mark, d.id,
                 fmt::format("{} ({}) via {}", d.name, gpu::to_string(d.adapter.type), d.adapter.backend),
                 library_name(d.library), features_text(gpu::enabled_features(d.adapter.features)),
                 fmt::format("{:.0f} us", d.adapter.submit_us),
                 fmt::format("{:.1f} us", d.adapter.dispatch_us)});
  }
  fmt::print("{}", table.text(colour));
}

/// What is there but cannot be used, one line each.
void print_refused(const std::vector<gpu::LibraryReport>& libraries) {
  for (const gpu::LibraryReport& library : libraries) {
    if (!library.message.empty()) to_stderr("{}: {}\n", gpu::to_string(library.status), library.message);
    for (const gpu::AdapterReport& adapter : library.adapters)
      if (!adapter.usable())
        to_stderr("adapter {} through {}: {}\n", adapter.name, library.path, adapter.error);
  }
}

void explain(const std::vector<DeviceEntry>& devices, const DeviceWish& wanted, const DeviceChoice& choice) {
  const bool colour = term::colours(stdout);
  const auto heading = [&](const char* text) {
    fmt::print("\n{}\n", term::styled(text, term::Style::bold, colour));
  };
  heading("Available devices");
  for (const DeviceEntry& d : devices) {
    if (d.is_cpu()) {
      fmt::print("  {:<9} {}\n", d.id, d.name);
      continue;
    }
    const gpu::Limits& l = d.adapter.limits;
    fmt::print("  {:<9} {} ({}) via {}\n", d.id, d.name, gpu::to_string(d.adapter.type), d.adapter.backend);
    fmt::print("            driver {}; library {} [{}]\n", d.adapter.driver, library_name(d.library),
               d.library.path);
    fmt::print("            buffers to {}, bindings to {}, {} per kernel; workgroups of {} threads and {}\n",
               term::bytes(l.max_buffer_size), term::bytes(l.max_binding_size), l.max_storage_buffers,
               l.max_workgroup_threads, term::bytes(l.max_workgroup_memory));
    if (!d.adapter.features.matrices.empty())
      fmt::print("            subgroup matrices: {}\n", matrices_text(d.adapter.features));
  }
  heading("Priority order");
  fmt::print(
      "  discrete GPU, integrated GPU, other GPU, CPU backend, software adapter (only when asked for)\n");
  heading("Simulated selection");
  for (const char* value : {"auto", "webgpu", "cpu"}) {
    try {
      const DeviceChoice simulated = choose_device(value, devices);
      fmt::print("  {:<9} -> {} ({}): {}\n", value, simulated.device.id, simulated.device.name,
                 simulated.reason);
    } catch (const Error& e) {
      fmt::print("  {:<9} -> none\n", value);
    }
  }
  heading("Override");
  fmt::print("  order: --device, WEFT_DEVICE, DEVICE; now: {} = {}\n", wanted.source, wanted.value);
  fmt::print("  selected: {} ({}), because {}\n", choice.device.id, choice.device.name, choice.reason);
}

json device_json(const DeviceEntry& d) {
  json entry = {{"id", d.id}, {"name", d.name}, {"kind", d.is_cpu() ? "cpu" : "webgpu"}};
  if (d.is_cpu()) {
    entry["threads"] = env::thread_count();
    return entry;
  }
  // One shape for adapters everywhere: the report's own JSON.
  gpu::LibraryReport one = d.library;
  one.adapters = {d.adapter};
  one.adapters[0].features = gpu::enabled_features(d.adapter.features);
  json report = json::parse(gpu::to_json(one));
  entry["adapter"] = report["adapters"][0];
  report.erase("adapters");
  entry["library"] = report;
  return entry;
}

void print_json(const std::vector<DeviceEntry>& devices, const std::vector<gpu::LibraryReport>& libraries,
                const DeviceWish& wanted, const DeviceChoice& choice) {
  json out = {{"selected", choice.device.id},
              {"reason", choice.reason},
              {"wanted", wanted.value},
              {"wanted_by", wanted.source}};
  for (const DeviceEntry& d : devices) out["devices"].push_back(device_json(d));
  out["libraries"] = json::array();
  for (const gpu::LibraryReport& library : libraries)
    out["libraries"].push_back(json::parse(gpu::to_json(library)));
  fmt::print("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace));
}

}  // namespace

int devices(const DevicesOptions& options) {
  const std::vector<gpu::LibraryReport> libraries = gpu::probe_all();
  const std::vector<DeviceEntry> list = list_devices(libraries);
  const DeviceWish wanted = device_wish(options.device);
  const DeviceChoice choice = choose_device(wanted.value, list);
  if (options.json) {
    print_json(list, libraries, wanted, choice);
    return 0;
  }
  print_table(list, choice);
  print_refused(libraries);
  if (options.explain) explain(list, wanted, choice);
  return 0;
}

int selftest(const std::string& device) {
  const DeviceChoice choice = choose_device(device_wish(device).value, list_devices(gpu::probe_all()));
  fmt::print("self-test on {} ({}): {}\n", choice.device.id, choice.device.name, choice.reason);
  const std::unique_ptr<Backend> backend = open_device(choice.device);
  term::Table table({"op", "max difference", "tolerance", "speed", ""});
  bool passed = true;
  for (const doctor::SelfTestRow& row : selftest::run(*backend)) {
    table.add({row.op, fmt::format("{:.1e}", row.max_difference), fmt::format("{:.0e}", row.tolerance),
               fmt::format("{:.1f} {}", row.value, row.unit), row.passed ? "ok" : "WRONG"});
    passed = passed && row.passed;
  }
  fmt::print("{}", table.text(term::colours(stdout)));
  if (!passed)
    to_stderr("weft: {} computes wrong results; `weft doctor` looks for the cause\n", choice.device.id);
  return passed ? 0 : 1;
}

}  // namespace weft::cli
