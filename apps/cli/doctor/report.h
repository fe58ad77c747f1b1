#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "doctor/facts.h"
#include "doctor/finding.h"
#include "doctor/fix.h"
#include "doctor/selftest.h"
#include "doctor/system.h"

namespace weft::doctor {

/// The last word, and the exit status that goes with it.
struct Verdict {
  int exit_code = 1;
  std::string word;    ///< PASS, PARTIAL or FAIL
  std::string reason;  ///< what follows the word; empty for PASS

  std::string line() const { return "[RESULT] " + word + (reason.empty() ? "" : " " + reason); }
};

/// All that a report is printed from.
struct Report {
  const System& system;
  Facts facts = {};
  std::vector<Finding> findings = {};
  std::vector<RepairReport> repairs = {};
  bool tested = false;
  std::vector<SelfTest> self_tests = {};
  Verdict verdict = {};
};

/// An adapter that computes on a GPU (a library may not know the type of an odd one, but it knows llvmpipe).
bool is_gpu(const gpu::AdapterReport& adapter);

Verdict judge(const Facts& facts, const std::vector<Finding>& findings, bool tested,
              const std::vector<SelfTest>& self_tests);

/// For people; marks are words unless `colour`.
void print_text(const Report& report, bool colour, std::ostream& out);
/// For programs: one JSON object.
void print_json(const Report& report, std::ostream& out);

}  // namespace weft::doctor
