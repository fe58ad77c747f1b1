#include <doctest/doctest.h>

#include "support/program.h"

using namespace weft;

TEST_SUITE("examples") {
  TEST_CASE("every example runs on the CPU and on a GPU") {
    for (const char* name : {"arrays", "custom_op", "gradients"})
      for (const char* device : {"cpu", "webgpu"}) {
        CAPTURE(name);
        CAPTURE(device);
        const test::Output out =
            test::run_program(std::string(WEFT_EXAMPLES_DIR "/example-") + name, {device});
        CAPTURE(out.text);
        CAPTURE(out.errors);
        CHECK(out.status == 0);
      }
  }
}
