#pragma once

#include <iostream>
#include <ostream>

#include "doctor/facts.h"
#include "doctor/selftest.h"
#include "doctor/system.h"

namespace weft::doctor {

struct Options {
  bool json = false;
  bool test = false;    ///< run the compute self-test; a GPU then counts only when it passes
  bool fix = false;     ///< do what can be done safely
  bool colour = false;  ///< standard output is a terminal
  System system = System::real();
  std::ostream* out = &std::cout;
  WebGpuProbe probe = probe_webgpu;
  SelfTests self_tests = run_self_tests;
};

/// `weft doctor`. Returns the exit status: 0 a GPU works, 1 only a CPU adapter or the CPU backend, 2 nothing
/// works.
int run(const Options& options);

}  // namespace weft::doctor
