#include "quant/quant.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "quant/codes.h"
#include "quant/grids.h"
#include "support/gpus.h"
#include "support/quant_data.h"

using namespace weft;
using namespace weft::quant;

TEST_SUITE("base: quant") {
  TEST_CASE("names, numbers and sizes are ggml's") {
    for (const Type type : test::all_quant_types()) {
      const Traits& t = traits(type);
      CAPTURE(t.name);
      CHECK(test::golden_values<int32_t>(type, "traits") ==
            std::vector<int32_t>{t.ggml_id, static_cast<int32_t>(t.block_elements),
                                 static_cast<int32_t>(t.block_bytes)});
      CHECK(type_from_name(t.name) == type);
      CHECK(type_from_ggml(t.ggml_id) == type);
    }
    for (const int id : {-1, 4, 5, 9, 24, 28, 1000}) CHECK_FALSE(type_from_ggml(id));
  }

  TEST_CASE("every type gives the bits that gguf-py gives") {
    for (const Type type : test::all_quant_types()) {
      const Traits& t = traits(type);
      CAPTURE(t.name);
      const std::vector<std::byte> blocks = test::golden_values<std::byte>(type, "blocks");
      const std::vector<uint32_t> expected = test::golden_values<uint32_t>(type, "values");
      REQUIRE(expected.size() >= 64);
      REQUIRE(row_bytes(type, expected.size()) == blocks.size());

      // At an odd address, and with a value behind the last one that has to stay.
      std::vector<std::byte> odd(blocks.size() + 1);
      std::copy(blocks.begin(), blocks.end(), odd.begin() + 1);
      std::vector<float> out(expected.size() + 1, 42.0f);
      dequantize(type, odd.data() + 1, out.data(), expected.size());
      size_t wrong = 0, first_wrong = 0;
      for (size_t i = expected.size(); i-- > 0;)
        if (std::bit_cast<uint32_t>(out[i]) != expected[i]) ++wrong, first_wrong = i;
      CAPTURE(first_wrong);
      CHECK(wrong == 0);
      CHECK(out.back() == 42.0f);
    }
  }

  TEST_CASE("grids hold every point of gguf-py's") {
    const auto check = [](Type type, const auto& grid) {
      CAPTURE(traits(type).name);
      const std::vector<int8_t> expected = test::golden_values<int8_t>(type, "grid");
      std::vector<int8_t> got;
      for (const auto& point : grid)
        for (const uint8_t digit : point)  // iq1: -1 0 1, which the table has times 8 and moved up by 1
          got.push_back(static_cast<int8_t>(type == Type::iq1_s ? digit - 1 : coding(type).table[digit]));
      CHECK(got == expected);
    };
    check(Type::iq2_xxs, kGridIq2Xxs);
    check(Type::iq2_xs, kGridIq2Xs);
    check(Type::iq2_s, kGridIq2S);
    check(Type::iq3_xxs, kGridIq3Xxs);
    check(Type::iq3_s, kGridIq3S);
    check(Type::iq1_s, kGridIq1);
  }

  TEST_CASE("rows are whole numbers of blocks") {
    CHECK(row_bytes(Type::q4_k, 0) == 0);
    CHECK(row_bytes(Type::q4_k, 4096) == 16 * 144);
    CHECK(row_bytes(Type::f16, 3) == 6);
    dequantize(Type::q4_k, nullptr, nullptr, 0);

    const std::string message =
        "[quant] 100 elements are not a whole number of q4_k blocks, which hold 256 each";
    const test::Caught bytes = test::error_of([] { row_bytes(Type::q4_k, 100); });
    CHECK(bytes.kind == "invalid");
    CHECK(bytes.message == message);
    CHECK(test::error_of([] { dequantize(Type::q4_k, nullptr, nullptr, 100); }).message == message);

    const uint64_t most = std::numeric_limits<uint64_t>::max();
    CHECK(row_bytes(Type::f32, most / 4) == most / 4 * 4);
    CHECK(test::error_of([&] { row_bytes(Type::f32, most / 4 + 1); }).message ==
          "[quant] 4611686018427387904 elements of f32 do not fit into memory");
  }

  TEST_CASE("a name that does not exist lists those that do") {
    const test::Caught caught = test::error_of([] { type_from_name("q9_k"); });
    CHECK(caught.kind == "invalid");
    CHECK(caught.message.starts_with("[quant] no type is called 'q9_k': use one of f16 bf16 f32 q4_0 "));
    CHECK(caught.message.ends_with(" mxfp4 nvfp4"));
    for (const std::string_view bad : {"", "Q4_0", "q4_0 ", "q8_1"})
      CHECK(test::error_of([&] { type_from_name(bad); }).kind == "invalid");
  }
}
