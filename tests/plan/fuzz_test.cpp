// Random programs: fused against unfused, the GPU against the CPU.
#include <doctest/doctest.h>

#include <cstdlib>

#include "backend/webgpu/webgpu_backend.h"
#include "support/gpus.h"
#include "support/random_program.h"
#include "weft/error.h"

using namespace weft;

namespace {

std::string fused_differs(const test::Program& program, const Device& device) {
  try {
    return test::difference(program, test::run_program(program, device),
                            test::run_program(program, device, test::Running::apart));
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string device_differs(const test::Program& program, const Device& device) {
  try {
    return test::difference(program, test::run_program(program, device),
                            test::run_program(program, Device()));
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string recorded_differs(const test::Program& program, const Device& device) {
  try {
    return test::difference(program, test::run_program(program, device, test::Running::recorded),
                            test::run_program(program, Device()));
  } catch (const std::exception& e) {
    return e.what();
  }
}

/// Runs programs of `count` seeds; at most three failures are told.
void fuzz(uint64_t first, uint64_t count, const Device& device, test::Verdict verdict) {
  int failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < 3; ++seed) {
    const test::Program program = test::random_program(seed);
    if (verdict(program, device).empty()) continue;
    ++failures;
    const test::Program small = test::minimal(program, device, verdict);
    FAIL_CHECK(verdict(small, device), "\n", test::to_string(small));
  }
}

/// FUZZ_SEEDS=FIRST:COUNT runs others.
void seeds(uint64_t& first, uint64_t& count) {
  const char* given = std::getenv("FUZZ_SEEDS");
  if (!given) return;
  char* rest = nullptr;
  first = std::strtoull(given, &rest, 10);
  if (*rest == ':') count = std::strtoull(rest + 1, nullptr, 10);
}

}  // namespace

TEST_SUITE("base: fuzz") {
  TEST_CASE("fused programs compute what their ops compute one by one") {
    uint64_t first = 0, count = 2000;
    seeds(first, count);
    fuzz(first, count, Device(), fused_differs);
  }
}

TEST_SUITE("gpu fuzz") {
  TEST_CASE("programs compute on the GPU what they compute on the CPU") {
    // Each library gets programs of its own; five of them make 2,000. A sanitizer is after other mistakes.
#ifdef __SANITIZE_ADDRESS__
    uint64_t first = 0, count = 20;
#else
    uint64_t first = 0, count = 200;
#endif
    seeds(first, count);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      fuzz(first, count, Device(std::make_shared<WebgpuBackend>(gpu.open())), device_differs);
      first += count;
    });
  }

  TEST_CASE("recorded programs, whose small kernels become one, compute the same") {
    uint64_t first = 10'000, count = 1;  // each compiles kernels of its own
    seeds(first, count);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      for (const bool software : {true, false}) {
        fuzz(first, count, Device(std::make_shared<WebgpuBackend>(gpu.open(), software)), recorded_differs);
        first += count;
      }
    });
  }
}
