#include <doctest/doctest.h>

#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "support/quant_data.h"
#include "weft/grad.h"

using namespace weft;

namespace {

std::string message_of(std::string_view op, const std::vector<Array>& inputs, const Attrs& attrs) {
  return test::error_of([&] { call(op, inputs, attrs); }).message;
}

}  // namespace

TEST_SUITE("base: ops quant") {
  TEST_CASE("products with packed weights have a gradient for x, and x any leading dims") {
    const Array w = Array::from_host(test::random_blocks(quant::Type::q4_k, 5, 256));
    const Array all = call("dequantize", {w}, {{"type", "q4_k"}, {"shape", Ints{5, 256}}});
    const Array packed = call("repack", {w}, {{"type", "q4_k"}, {"k", 256}});
    const Attrs attrs{{"type", "q4_k"}, {"n", 5}, {"k", 256}};
    const Array x = Array::from_vector(std::vector<float>(6 * 256, 0.5f), {2, 3, 256});
    const Array y = call("qmatmul_packed", {x, packed}, attrs);
    CHECK(y.shape() == Shape{2, 3, 5});
    const Array g = Array::from_vector(std::vector<float>(30, 2.0f), {2, 3, 5});
    const std::vector<float> got = vjp({y}, {g}, {x})[0].to_vector(),
                             want = call("matmul", {g, all}).to_vector();
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
    CHECK(call("qmatmul_codes", {call("activation_codes", {x}), packed}, attrs).shape() == Shape{2, 3, 5});
    // A column of x that is not contiguous.
    const Array turned = transpose(Array::from_vector(std::vector<float>(3 * 256, 0.5f), {256, 3}), 0, 1);
    CHECK(call("qmatmul_packed", {turned, packed}, attrs).to_vector()[4] == y.to_vector()[4]);
  }

  TEST_CASE("empty products") {
    const Array none = Array::from_host({DType::u8, {0, 18}, {}});
    const Array packed = call("repack", {none}, {{"type", "q4_0"}, {"k", 32}});
    const Array x = Array::from_vector(std::vector<float>(32, 1), {1, 32});
    CHECK(call("qmatmul", {x, none}, {{"type", "q4_0"}, {"n", 0}, {"k", 32}}).shape() == Shape{1, 0});
    CHECK(call("qmatmul_packed", {x, packed}, {{"type", "q4_0"}, {"n", 0}, {"k", 32}}).to_vector().empty());
  }

  TEST_CASE("mistakes are named") {
    const Array w = Array::from_host(test::random_blocks(quant::Type::q4_0, 2, 64));
    const Array packed = call("repack", {w}, {{"type", "q4_0"}, {"k", 64}});
    const Array x = Array::from_vector(std::vector<float>(64, 1), {1, 64});
    CHECK(message_of("repack", {w}, {{"type", "q4_0"}, {"k", 32}}) ==
          "[repack] rows of 36 bytes are not 32 elements of q4_0");
    CHECK(message_of("repack", {w}, {{"type", "f16"}, {"k", 18}}) ==
          "[quant] f16 has no blocks to repack; multiply it as it is");
    CHECK(message_of("repack", {x}, {{"type", "q4_0"}, {"k", 64}}) ==
          "[repack] blocks are f32 (1,64), expected u8 (rows, bytes)");
    CHECK(message_of("qmatmul_packed", {x, packed}, {{"type", "q8_0"}, {"n", 2}, {"k", 64}}) ==
          "[qmatmul_packed] packed weights are u32 (144); repack gives u32 (272) for q8_0 (2,64)");
    CHECK(message_of("qmatmul_codes", {x, packed}, {{"type", "q4_0"}, {"n", 2}, {"k", 64}}) ==
          "[qmatmul_codes] x is f32, expected u32");
    CHECK(message_of("activation_codes", {slice_dim(x, 1, 0, 40)}, {}) ==
          "[activation_codes] x is f32 (1,40), expected f32 whose last dim is a multiple of 32");
    CHECK(message_of("qmatmul", {x, w}, {{"type", "q4_0"}, {"n", 3}, {"k", 64}}) ==
          "[qmatmul] weights are (2,36), expected (3, bytes)");
  }
}
