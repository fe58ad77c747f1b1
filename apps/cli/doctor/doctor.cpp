#include "doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "doctor/checks.h"
#include "doctor/report.h"

namespace weft::doctor {
namespace {

void examine(const Options& options, Report& report) {
  report.facts = gather(options.system, options.probe);
  report.findings = run_checks(options.system, report.facts);
}

void self_test(const Options& options, Report& report) {
  report.tested = true;
  try {
    report.self_tests = options.self_tests(report.facts.libraries);
  } catch (const std::exception& e) {
    report.findings.push_back({.id = "self-test",
                               .severity = Severity::error,
                               .title = "The self-test could not be run",
                               .detail = e.what(),
                               .fix = "Please report this as a fault of weft."});
    return;
  }
  std::vector<std::string> failed;
  for (const SelfTest& test : report.self_tests) {
    if (test.passed()) continue;
    std::vector<std::string> wrong;
    for (const SelfTestRow& row : test.rows)
      if (!row.passed)
        wrong.push_back(
            fmt::format("{} is off by {:.2e} (tolerance {:.0e})", row.op, row.max_difference, row.tolerance));
    if (!test.error.empty()) wrong.push_back(test.error);
    if (wrong.empty()) wrong.emplace_back("nothing was computed");
    failed.push_back(fmt::format("{} through {}: {}", test.adapter, test.library, join(wrong, "; ")));
  }
  if (failed.empty()) return;
  const bool all = failed.size() == report.self_tests.size();
  report.findings.push_back(
      {.id = "self-test",
       .severity = all ? Severity::error : Severity::warning,
       .title = "A device computes wrongly or not at all",
       .detail = join(failed, "\n"),
       .fix = "Update the GPU driver or the WebGPU library (WEFT_WEBGPU_LIB chooses another one);"
              " weft works on the devices that passed (WEFT_DEVICE)."});
}

}  // namespace

int run(const Options& options) {
  Report report{.system = options.system};
  examine(options, report);
  if (options.fix) {
    report.repairs = apply_repairs(options.system, report.findings);
    // What was repaired is to be seen in the report, so look again.
    if (std::any_of(report.repairs.begin(), report.repairs.end(),
                    [](const auto& r) { return r.repair.changed; }))
      examine(options, report);
    if (report.repairs.empty())
      report.repairs.push_back(
          {"none", {false, "there is nothing that can be repaired safely without you; see the fixes above"}});
  }
  if (options.test) self_test(options, report);
  report.verdict = judge(report.facts, report.findings, report.tested, report.self_tests);
  if (options.json)
    print_json(report, *options.out);
  else
    print_text(report, options.colour, *options.out);
  options.out->flush();
  return report.verdict.exit_code;
}

}  // namespace weft::doctor
