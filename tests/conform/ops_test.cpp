#include <doctest/doctest.h>

#include "array/host_tensor.h"
#include "base/paths.h"
#include "io/safetensors.h"
#include "support/gpus.h"
#include "support/program.h"
#include "support/scoped.h"
#include "support/skip.h"

#include <filesystem>

using namespace weft;

namespace {

const std::string kSuite = WEFT_SOURCE_DIR "/tests/data/ops/suite.json";

/// The whole suite passes, and only i64 may be skipped (WGSL has none): there is no i64 in it.
void check_suite(const std::string& device, const std::map<std::string, std::string>& environment = {}) {
  const test::Output out = test::run_weft({"conform", kSuite, "--device", device}, environment);
  CAPTURE(out.errors);
  CAPTURE(out.text);
  CHECK(out.status == 0);
  CHECK(out.text.find("946 passed, 0 failed, 0 skipped") != std::string::npos);
}

}  // namespace

TEST_SUITE("conformance") {
  TEST_CASE("every op and gradient on the CPU") {
    check_suite("cpu");
  }

  TEST_CASE("every op and gradient through every WebGPU library") {
    for (const test::TestLibrary& library : test::libraries()) {
      if (!library.supported) continue;
      CAPTURE(library.name);
      if (std::filesystem::exists(library.path))
        check_suite("webgpu", {{"WEFT_WEBGPU_LIB", library.path}});
      else
        test::skip(library.name + " is not fetched");
    }
  }

  TEST_CASE("the same without f16, subgroups and subgroup matrices") {
    for (const test::TestLibrary& library : test::libraries()) {
      if ((library.name != "Dawn 2026" && library.name != "wgpu-native 29") ||
          !std::filesystem::exists(library.path))
        continue;
      CAPTURE(library.name);
      check_suite("webgpu",
                  {{"WEFT_WEBGPU_LIB", library.path}, {"WEFT_GPU_DISABLE", "f16,subgroups,subgroup_matrix"}});
    }
  }

  TEST_CASE("a filter picks cases, and wrong suites are one clear line") {
    const test::Output some = test::run_weft({"conform", kSuite, "--device", "cpu", "--filter", "softmax/*"});
    CHECK(some.status == 0);
    CHECK(some.text.find("6 passed, 0 failed, 0 skipped") != std::string::npos);
    const test::Output none = test::run_weft({"conform", "/nonexistent.json", "--device", "cpu"});
    CHECK(none.status == 1);
    CHECK(none.errors.find("/nonexistent.json") != std::string::npos);
  }

  TEST_CASE("a tensor that is given twice has a gradient for each place") {
    const test::ScopedFolder folder;
    const auto number = [](float x) {
      HostTensor host{.dtype = DType::f32, .shape = {1}, .bytes = std::vector<std::byte>(4)};
      std::memcpy(host.bytes.data(), &x, 4);
      return host;
    };
    write_safetensors(folder.path / "t.safetensors",
                      {{"x", number(3)}, {"y", number(0)}, {"one", number(1)}, {"minus", number(-1)}});
    write_text(folder.path / "s.json",
               R"({"format":1,"tensors":"t.safetensors","cases":[{"name":"twice","op":"sub",)"
               R"("inputs":["x","x"],"outputs":["y"],"grad_outputs":["one"],"grads":["one","minus"],)"
               R"("rtol":0,"atol":0}]})");
    const test::Output out =
        test::run_weft({"conform", (folder.path / "s.json").string(), "--device", "cpu"});
    CHECK(out.text == "1 passed, 0 failed, 0 skipped\n");
  }

  TEST_CASE("a suite that cannot be read is one failure, and the others are run") {
    const test::ScopedFolder folder;
    const auto suite = [&](const char* name, const std::string& text) {
      write_text(folder.path / name, text);
      return (folder.path / name).string();
    };
    const std::string damaged = suite("damaged.json", "{"),
                      nameless = suite("nameless.json", R"({"format":1,"kind":""})"),
                      unlisted = suite("unlisted.json", R"({"format":1,"kind":"chat","cases":{"a":1}})"),
                      empty = suite("empty.json", R"({"format":1,"kind":"chat","cases":[]})"),
                      right = suite("right.json",
                                    R"({"format":1,"kind":"chat","templates":{"t":"x"},"cases":[)"
                                    R"({"name":"one","template":"t","messages":[],"expect":"x"}]})");
    const test::Output all =
        test::run_weft({"conform", "/nowhere.json", damaged, nameless, unlisted, empty, right});
    CHECK(all.status == 1);
    CHECK(all.text == "1 passed, 4 failed, 0 skipped\n");
    for (const std::string& file : {std::string("/nowhere.json"), damaged, nameless, unlisted})
      CHECK(all.errors.find(file) != std::string::npos);
    CHECK(all.errors.find(empty + ": the suite has no cases") != std::string::npos);

    const test::Output none = test::run_weft({"conform", right, "--filter", "two*"});
    CHECK(none.status == 2);
    CHECK(none.text.empty());
    CHECK(none.errors == "weft: [conform] no case is called 'two*'\n");
    CHECK(test::run_weft({"conform", right, "--filter", "on?"}).text == "1 passed, 0 failed, 0 skipped\n");
    CHECK(test::run_weft({"conform", kSuite, "--device", "webgpu:none"}).status == 2);
  }

  TEST_CASE("a case that cannot be run fails alone") {
    const test::ScopedFolder folder;
    const HostTensor one{.dtype = DType::f32, .shape = {1, 1, 1}, .bytes = std::vector<std::byte>(4)};
    write_safetensors(folder.path / "t.safetensors", {{"a", one}});
    const std::string of_a = R"("inputs":["a"],"outputs":["a"],"rtol":0,"atol":0)";
    const auto run = [&](const std::string& cases) {
      write_text(folder.path / "s.json", R"({"format":1,"tensors":"t.safetensors","cases":[)" + cases +
                                             R"({"name":"right",)" + of_a + R"(,"op":"relu"}]})");
      const test::Output out =
          test::run_weft({"conform", (folder.path / "s.json").string(), "--device", "cpu"});
      CHECK(out.status == 1);
      return out.text;
    };
    const std::string text = run(R"({"name":"output","op":"program",)" + of_a +
                                 R"(,"steps":[{"op":"neg","in":["a"]}],"results":["%0.1"]},{"name":"huge",)" +
                                 of_a + R"(,"op":"upsample_nearest1d","attrs":{"size":[2147483648]}},)");
    CHECK(text.find("FAIL output: [conform] step 0 has 1 outputs, there is no %0.1\n") != std::string::npos);
    CHECK(text.find("FAIL huge: [upsample_nearest1d] (1,1,1) cannot be resized to (2147483648)\n") !=
          std::string::npos);
    CHECK(text.find("1 passed, 2 failed, 0 skipped") != std::string::npos);

#if !defined(__SANITIZE_ADDRESS__)  // which ends a program that asks for so much
    const std::string longer = run(R"({"name":"long","op":"linspace","inputs":[],"outputs":["a"],"rtol":0,)"
                                   R"("atol":0,"attrs":{"start":0,"stop":1,"num":1152921504606846976}},)");
    CHECK(longer.find("FAIL long: its sizes are beyond this machine's memory\n") != std::string::npos);
    CHECK(longer.find("1 passed, 1 failed, 0 skipped") != std::string::npos);
#endif
  }
}
