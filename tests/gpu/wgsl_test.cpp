#include <doctest/doctest.h>

#include "gpu/wgsl.h"
#include "support/gpus.h"

using namespace weft;
using namespace weft::gpu;

namespace {

const WgslTarget kDawn{{.implementation = abi::Implementation::dawn},
                       {.f16 = true, .subgroups = true, .dot4 = true, .immediates = true},
                       64};
const WgslTarget kWgpu{
    {.implementation = abi::Implementation::wgpu}, {.f16 = true, .subgroups = true, .immediates = true}, 256};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("base: gpu wgsl") {
  TEST_CASE("features are enabled as each implementation wants them") {
    const std::string_view source = "fn f() -> f16 { return subgroupAdd(1.0h); }";
    CHECK(contains(translate("k", source, {}, kDawn).text, "enable f16;\nenable subgroups;\n"));
    CHECK(contains(translate("k", source, {}, kWgpu).text, "enable f16;\n"));
    CHECK_FALSE(contains(translate("k", source, {}, kWgpu).text, "enable subgroups;"));
    CHECK_FALSE(contains(translate("k", "fn f() {}", {}, kDawn).text, "enable"));
  }

  TEST_CASE("#if takes constants and features, and keeps line numbers") {
    const std::string_view source = "#if BIG\nbig\n#else\nsmall\n#endif\n#if !F16\nplain\n#endif\nend";
    const Wgsl big = translate("k", source, {{"BIG", true}}, kDawn);
    CHECK(big.text == "const BIG = true;\n\nbig\n\n\n\n\n\n\nend\n");
    CHECK(big.prelude_lines == 1);
    const WgslTarget no_f16{kDawn.abi, {}, 0};
    CHECK(translate("k", source, {{"BIG", 0u}}, no_f16).text ==
          "const BIG: u32 = 0u;\n\n\n\nsmall\n\n\nplain\n\nend\n");
    CHECK(test::error_of([&] { translate("k", "#if NONE\n#endif", {}, kDawn); }).message ==
          "[wgsl] kernel 'k' line 1: NONE is neither a constant nor a feature");
    CHECK(contains(test::error_of([&] { translate("k", "a\n#endif", {}, kDawn); }).message,
                   "line 2: '#endif' has no place here"));
    CHECK(contains(test::error_of([&] { translate("k", "#if F16", {}, kDawn); }).message,
                   "#if without #endif"));
  }

  TEST_CASE("#for repeats lines, and keeps line numbers") {
    const auto text = [](std::string_view source) {
      return translate("k", source, {{"TWO", 2u}}, kDawn)
          .text.substr(std::string_view("const TWO: u32 = 2u;\n").size());
    };
    CHECK(text("a\n#for i 3\nb[$i];  // why\n#endfor\nc") == "a\n b[0u];    b[1u];    b[2u];   \n\n\nc\n");
    CHECK(text("#for i TWO\n#for j TWO\n$i$j\n#endfor\n#endfor\nc") ==
          "  0u0u  0u1u    1u0u  1u1u  \n\n\n\n\nc\n");
    const auto error = [](std::string_view source) {
      return test::error_of([&] { translate("k", source, {}, kDawn); }).message;
    };
    CHECK(error("#for i NONE\n#endfor") == "[wgsl] kernel 'k' line 1: '#for i NONE' is not '#for i COUNT'");
    CHECK(error("a\n#endfor") == "[wgsl] kernel 'k' line 2: #endfor without #for");
    CHECK(error("#for i 2") == "[wgsl] kernel 'k': #for without #endfor");
  }

  TEST_CASE("constants of every type") {
    const Wgsl w = translate("k", "x", {{"A", 3}, {"B", 4u}, {"C", 0.5f}, {"D", false}}, kDawn);
    CHECK(w.text ==
          "const A: i32 = 3;\nconst B: u32 = 4u;\nconst C: f32 = 5.000000000e-01f;\nconst D = false;\nx\n");
  }

  TEST_CASE("bindings are read from the source") {
    const Wgsl w = translate("k",
                             "@group(0) @binding(0) var<storage, read> a: array<f32>;\n"
                             "// @group(0) @binding(7) var<storage> not_code: f32;\n"
                             "@group(0) @binding(1)\nvar<storage, read_write> b: array<f32>;\n"
                             "@group(0) @binding(2) var<storage> c: array<f32>;\n"
                             "@group(0) @binding(3) var d: texture_storage_2d<rgba32uint, read>;",
                             {}, kDawn);
    CHECK(w.accesses == std::vector<Access>{Access::read, Access::write, Access::read, Access::image});
    CHECK(contains(test::error_of([&] {
                     translate("k", "@group(0) @binding(1) var<storage, read> a: array<f32>;", {}, kDawn);
                   }).message,
                   "bindings 0, 1, 2 ... in order"));
  }

  TEST_CASE("params travel as immediates where they fit") {
    const std::string_view source = "struct Params { n: u32, scale: f32, shift: i32 }";
    CHECK(translate("k", source, {}, kDawn).params == ParamsPath::immediate);
    CHECK(translate("k", source, {}, kDawn).params_size == 12);
    CHECK(contains(translate("k", source, {}, kDawn).text, "var<immediate> params: Params;"));
    const WgslTarget without{kWgpu.abi, {}, 256};
    CHECK(translate("k", source, {}, without).params == ParamsPath::uniform);
    CHECK(contains(translate("k", source, {}, without).text,
                   "@group(1) @binding(0) var<uniform> params: Params;"));
    std::string large = "struct Params { ";
    for (int i = 0; i < 17; ++i) large += "m" + std::to_string(i) + ": u32, ";
    CHECK(translate("k", large + "}", {}, kDawn).params ==
          ParamsPath::uniform);  // 68 bytes do not fit into 64
    CHECK(
        contains(test::error_of([&] { translate("k", "struct Params { v: vec4<f32> }", {}, kDawn); }).message,
                 "not vec4<f32>"));
  }

  TEST_CASE("what one implementation lacks is refused for all") {
    for (const char* bad :
         {"fn f(p: ptr<storage, u32>) {}", "subgroupElect()", "bitcast<vec2<f16>>(x)", "enable f16;"}) {
      const auto caught = test::error_of([&] { translate("k", std::string("ok\n") + bad, {}, kDawn); });
      CHECK(caught.kind == "invalid");
      CHECK(contains(caught.message, "line 2"));
    }
  }

  TEST_CASE("dot4_i8 has two forms") {
    CHECK(contains(translate("k", "dot4_i8(a, b)", {}, kDawn).text, "return dot4I8Packed(a, b)"));
    CHECK_FALSE(contains(translate("k", "dot4_i8(a, b)", {}, kWgpu).text, "dot4I8Packed"));
  }

  TEST_CASE("compiler messages get the lines of the source") {
    CHECK(relate_to_source("error at wgsl:12:5: oh", 10) == "error at line 2 column 5: oh");
    CHECK(relate_to_source(":3:1 error", 0) == "line 3 column 1 error");
    CHECK(relate_to_source("no numbers", 4) == "no numbers");
  }
}
