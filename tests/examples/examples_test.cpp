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

  TEST_CASE("a model from plain C") {
    const test::Output out = test::run_program(WEFT_EXAMPLES_DIR "/example-chat",
                                               {WEFT_SOURCE_DIR "/tests/data/models/qwen2/model-f32.gguf"});
    CAPTURE(out.errors);
    CHECK(out.status == 0);
    CHECK(out.text.find("tokens: Hello, world\n") != std::string::npos);
    CHECK(out.text.find("16 tokens made\n") != std::string::npos);
    CHECK(out.text.find("error: ") != std::string::npos);
  }
}
