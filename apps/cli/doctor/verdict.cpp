#include <fmt/format.h>

#include <algorithm>

#include "doctor/report.h"

/// PASS, PARTIAL or FAIL: what counts as "the GPU works".
namespace weft::doctor {
namespace {

bool passed_test(const std::vector<SelfTest>& tests, const std::string& library, const std::string& adapter) {
  return std::any_of(tests.begin(), tests.end(), [&](const SelfTest& test) {
    return test.library == library && test.adapter == adapter && test.passed();
  });
}

/// The most serious finding says best why there is no GPU.
std::string main_reason(const Facts& facts, const std::vector<Finding>& findings) {
  for (Severity severity : {Severity::error, Severity::warning})
    for (const Finding& finding : findings)
      if (finding.severity == severity) return finding.title;
  return facts.gpus.empty() ? "no GPU was found" : "no adapter";
}

}  // namespace

bool SelfTest::passed() const {
  return error.empty() && !rows.empty() &&
         std::all_of(rows.begin(), rows.end(), [](const SelfTestRow& row) { return row.passed; });
}

bool is_gpu(const gpu::AdapterReport& adapter) {
  if (adapter.type != gpu::AdapterType::unknown) return adapter.type != gpu::AdapterType::cpu;
  return !mentions(adapter.name, "llvmpipe") && !mentions(adapter.name, "swiftshader") &&
         !mentions(adapter.driver, "llvmpipe") && !mentions(adapter.driver, "swiftshader");
}

Verdict judge(const Facts& facts, const std::vector<Finding>& findings, bool tested,
              const std::vector<SelfTest>& self_tests) {
  const gpu::AdapterReport* software = nullptr;
  for (const gpu::LibraryReport& library : facts.libraries) {
    if (!library.usable()) continue;
    for (const gpu::AdapterReport& adapter : library.adapters) {
      if (!adapter.usable() || (tested && !passed_test(self_tests, library.path, adapter.name))) continue;
      if (is_gpu(adapter)) return {0, "PASS", ""};
      if (!software) software = &adapter;
    }
  }
  if (software)
    return {1, "PARTIAL",
            fmt::format("only a CPU adapter works ({} via {})", software->name, software->backend)};
  // weft's own CPU backend needs nothing from the machine; only a test can show that it does not work.
  for (const SelfTest& test : self_tests)
    if (test.library == kCpuBackend && !test.passed())
      return {2, "FAIL",
              fmt::format("nothing works: {}; CPU backend: {}", main_reason(facts, findings),
                          test.error.empty() ? "wrong results" : test.error)};
  return {1, "PARTIAL", fmt::format("only weft's CPU backend works ({})", main_reason(facts, findings))};
}

}  // namespace weft::doctor
