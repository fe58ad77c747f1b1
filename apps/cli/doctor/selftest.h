#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/report.h"

namespace weft::doctor {

/// One op of the self-test: how far the device's answer is from the reference, and how fast it was.
struct SelfTestRow {
  std::string op;
  double max_difference = 0, tolerance = 0;
  bool passed = false;
  double value = 0;  ///< speed, in `unit`; 0 = not measured
  std::string unit;  ///< "GB/s", "GFLOP/s"
};

/// The self-test of one adapter through one library.
struct SelfTest {
  std::string library, adapter;  ///< LibraryReport::path and AdapterReport::name; kCpuBackend for weft's own
  std::vector<SelfTestRow> rows;
  std::string error;  ///< why the test could not be finished

  bool passed() const;
};

/// `library` of the self-test of weft's CPU backend, when it is tested too.
inline constexpr const char* kCpuBackend = "cpu";

using SelfTests = std::function<std::vector<SelfTest>(const std::vector<gpu::LibraryReport>&)>;

/// Tests every usable adapter of every library, and the CPU backend. Throws nothing: failures are in the
/// result.
std::vector<SelfTest> run_self_tests(const std::vector<gpu::LibraryReport>& libraries);

}  // namespace weft::doctor
