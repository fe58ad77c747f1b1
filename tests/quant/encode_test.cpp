#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "io/safetensors.h"
#include "quant/importance.h"
#include "support/gpus.h"
#include "support/quant_data.h"
#include "weft/error.h"

using namespace weft;
using namespace weft::quant;

namespace {

std::vector<std::byte> encoded(Type type, std::span<const float> row,
                               std::span<const float> importance = {}) {
  std::vector<std::byte> out(row_bytes(type, row.size()));
  encode(type, row, out, importance);
  return out;
}

std::vector<float> floats(const HostTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(element_count(tensor.shape)));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

bool has_group_of_zeros(std::span<const float> row) {
  for (size_t at = 0; at < row.size(); at += 32)
    if (std::ranges::all_of(row.subspan(at, 32), [](float x) { return x == 0; })) return true;
  return false;
}

/// Root mean square error of random normal weights, as a part of their own size.
double relative_error(Type type, std::span<const float> importance) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> row(4096), back(row.size());
  for (float& x : row) x = normal(random);
  dequantize(type, encoded(type, row, importance).data(), back.data(), row.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    error += importance[i] * std::pow(back[i] - row[i], 2);
    size += importance[i] * std::pow(row[i], 2);
  }
  return std::sqrt(error / size);
}

}  // namespace

TEST_SUITE("base: quant encode") {
  TEST_CASE("every type gives the bytes that ggml gives") {
    const Safetensors file = Safetensors::open(WEFT_SOURCE_DIR "/tests/data/quant/encoded.safetensors");
    const std::vector<float> x = floats(file.load("values")), known = floats(file.load("importance"));
    const size_t columns = known.size();
    int types = 0;
    for (const Type type : test::all_quant_types()) {
      const bool important = file.contains(std::string(traits(type).name) + ".important");
      const std::string name = std::string(traits(type).name) + (important ? ".important" : ".bytes");
      if (!file.contains(name)) continue;
      ++types;
      const std::vector<std::byte> expected = file.load(name).bytes;
      const size_t bytes = row_bytes(type, columns);
      for (size_t row = 0; row * columns < x.size(); ++row) {
        CAPTURE(name);
        CAPTURE(row);
        const std::span<const float> values_here(x.data() + row * columns, columns);
        // ggml writes what follows a group of zeros in the wrong place.
        if (type == Type::iq3_s && has_group_of_zeros(values_here)) continue;
        const auto at = expected.begin() + static_cast<std::ptrdiff_t>(row * bytes);
        CHECK(encoded(type, values_here, important ? known : std::span<const float>()) ==
              std::vector<std::byte>(at, at + static_cast<std::ptrdiff_t>(bytes)));
      }
    }
    CHECK(types == 26);
  }

  TEST_CASE("errors of random weights are as small as the bits allow") {
    const std::pair<Type, double> bounds[] = {
        {Type::f32, 0},      {Type::f16, 3e-4},    {Type::bf16, 2e-3},    {Type::q8_0, 6e-3},
        {Type::q8_k, 9e-3},  {Type::q6_k, 0.02},   {Type::q5_k, 0.04},    {Type::q5_0, 0.05},
        {Type::q5_1, 0.05},  {Type::q4_k, 0.08},   {Type::iq4_nl, 0.08},  {Type::iq4_xs, 0.08},
        {Type::q4_0, 0.1},   {Type::q4_1, 0.09},   {Type::nvfp4, 0.11},   {Type::mxfp4, 0.12},
        {Type::q3_k, 0.16},  {Type::iq3_s, 0.17},  {Type::q2_k, 0.33},    {Type::iq3_xxs, 0.22},
        {Type::iq2_s, 0.3},  {Type::iq2_xs, 0.33}, {Type::iq2_xxs, 0.37}, {Type::iq1_m, 0.5},
        {Type::iq1_s, 0.53},
    };
    const std::vector<float> all_the_same(4096, 1);
    std::vector<float> uneven(all_the_same);
    for (size_t i = 0; i < uneven.size(); i += 4) uneven[i] = 30;
    for (const auto& [type, bound] : bounds) {
      CAPTURE(traits(type).name);
      CHECK(relative_error(type, all_the_same) <= bound);
      // Who knows what is important errs less there.
      if (bound > 0.17 && type != Type::q2_k)
        CHECK(relative_error(type, uneven) < relative_error(type, all_the_same));
    }
  }

  TEST_CASE("ternary weights survive") {
    std::mt19937 random(5);
    std::vector<float> row(512), back(row.size());
    for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 3) - 1) * 0.75f;
    for (const Type type : {Type::tq1_0, Type::tq2_0}) {
      dequantize(type, encoded(type, row).data(), back.data(), row.size());
      CHECK(back == row);
    }
  }

  TEST_CASE("what cannot be encoded is said") {
    for (const Type type : test::all_quant_types()) {
      CAPTURE(traits(type).name);
      std::vector<float> row(256, 1.0f);
      for (const float odd :
           {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
        row[200] = odd;
        CHECK(test::error_of([&] { encoded(type, row); }).message ==
              fmt::format("[quant] element 200 of a row is {}: only finite values can be encoded", odd));
      }
      row[200] = 1;
      if (needs_importance(type))
        CHECK(test::error_of([&] { encoded(type, row); }).message ==
              fmt::format("[quant] {} needs to know which elements are important", traits(type).name));
      else
        CHECK(encoded(type, {}).empty());
    }
    const std::vector<float> huge(256, -3e38f);
    CHECK(test::error_of([&] { encoded(Type::q8_0, huge); }).message ==
          "[quant] the values are too large: f16 has no room for 2.3622e+36");
    CHECK(test::error_of([&] { encoded(Type::f16, huge); }).kind == "invalid");
    CHECK_NOTHROW(encoded(Type::mxfp4, huge));

    std::vector<std::byte> small(17);
    CHECK(test::error_of([&] { encode(Type::q4_0, std::vector<float>(32), small); }).message ==
          "[quant] 32 elements of q4_0 take 18 bytes, not 17");
    CHECK(test::error_of([&] { encode(Type::q4_0, std::vector<float>(31), small); }).kind == "invalid");
  }

  TEST_CASE("any finite values become blocks of finite values, or an error") {
    std::mt19937 random(8);
    std::vector<float> row(256), back(row.size());
    int encoded_rows = 0;
    for (int round = 0; round < 90; ++round) {
      for (float& x : row) {
        const int exponent =
            round < 30 ? -130 - round : static_cast<int>(random() % (round < 60 ? 160 : 277)) - 149;
        x = std::ldexp(static_cast<float>(static_cast<int>(random() % 3) - 1), exponent);
      }
      for (const Type type : test::all_quant_types()) {
        if (needs_importance(type)) continue;
        CAPTURE(traits(type).name);
        try {
          dequantize(type, encoded(type, row).data(), back.data(), row.size());
        } catch (const Error& error) {
          CHECK(round >= 60);  // no value above 1024 before
          CHECK(error.kind() == ErrorKind::invalid);
          continue;
        }
        ++encoded_rows;
        for (const float x : back) REQUIRE(std::isfinite(x));
      }
    }
    CHECK(encoded_rows > 60 * 20);
  }
}
