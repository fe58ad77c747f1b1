#include "conform/compare.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "array/half.h"

using namespace weft;
using conform::compare;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
HostTensor tensor(DType dtype, const Shape& shape, const std::vector<T>& values) {
  HostTensor result{
      .dtype = dtype, .shape = shape, .bytes = std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}

HostTensor floats(const Shape& shape, const std::vector<float>& values) {
  return tensor(DType::f32, shape, values);
}

HostTensor halves(DType dtype, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float f : values) bits.push_back(dtype == DType::f16 ? float_to_half(f) : float_to_bfloat(f));
  return tensor(dtype, {static_cast<int64_t>(bits.size())}, bits);
}

bool same(float got, float want, double rtol = 0, double atol = 0) {
  return compare(floats({}, {got}), floats({}, {want}), rtol, atol).equal;
}

}  // namespace

TEST_SUITE("base: conform") {
  TEST_CASE("compare: equal tensors have nothing to say") {
    const HostTensor x = floats({2, 2}, {1, kNan, kInf, -kInf});
    CHECK(compare(x, x, 0, 0).equal);
    CHECK(compare(x, x, 0, 0).text.empty());
    CHECK(compare(floats({3, 0}, {}), floats({3, 0}, {}), 0, 0).equal);
  }

  TEST_CASE("compare: the tolerance, its edge included") {
    CHECK(same(1.5F, 1, 0, 0.5));
    CHECK_FALSE(same(1.5F, 1, 0, 0.4999));
    CHECK(same(3, 2, 0.5, 0));
    CHECK(same(3, 2, 0.25, 0.5));
    CHECK_FALSE(same(3, 2, 0.25, 0.49));
    CHECK_FALSE(same(2, 3, 0.3, 0));  // relative to what is wanted
    CHECK(same(-0.0F, 0));
    CHECK_FALSE(same(std::numeric_limits<float>::denorm_min(), 0));
  }

  TEST_CASE("compare: NaN meets NaN, an infinity the same infinity, whatever the tolerance") {
    constexpr double kHuge = 1e308;
    CHECK(same(kNan, kNan));
    CHECK(same(kInf, kInf));
    for (float other : {0.0F, kInf, -kInf}) {
      CHECK_FALSE(same(kNan, other, kHuge, kHuge));
      CHECK_FALSE(same(other, kNan, kHuge, kHuge));
    }
    CHECK_FALSE(same(kInf, -kInf, kHuge, kHuge));
    CHECK_FALSE(same(kInf, 3e38F, kHuge, kHuge));
    CHECK_FALSE(same(3e38F, kInf, kHuge, kHuge));
  }

  TEST_CASE("compare: f16 and bf16 by value") {
    for (DType dtype : {DType::f16, DType::bf16}) {
      CHECK(compare(halves(dtype, {1, 2.5F, kInf}), halves(dtype, {1, 2.5F, kInf}), 0, 0).equal);
      CHECK(compare(halves(dtype, {2.25F}), halves(dtype, {2.5F}), 0.1, 0).equal);
      CHECK(compare(halves(dtype, {1, 2.25F}), halves(dtype, {1, 2.5F}), 0, 0.125).text ==
            "1 of 2 elements differ, largest error 0.25 (allowed 0.125) at (1): got 2.25, want 2.5");
    }
  }

  TEST_CASE("compare: integers and bools are exact") {
    const auto one_off = []<typename T>(DType dtype, T got, T want) {
      CHECK(compare(tensor<T>(dtype, {1}, {want}), tensor<T>(dtype, {1}, {want}), 0, 0).equal);
      return compare(tensor<T>(dtype, {1}, {got}), tensor<T>(dtype, {1}, {want}), 100, 100).text;
    };
    CHECK(one_off(DType::i32, int32_t{-5}, int32_t{-4}) ==
          "1 of 1 elements differ, largest error 1 at (0): got -5, want -4");
    CHECK(one_off(DType::u32, uint32_t{0xffffffff}, uint32_t{0xfffffffe}) ==
          "1 of 1 elements differ, largest error 1 at (0): got 4294967295, want 4294967294");
    CHECK(one_off(DType::i8, int8_t{-128}, int8_t{127}) ==
          "1 of 1 elements differ, largest error 255 at (0): got -128, want 127");
    CHECK(one_off(DType::u8, uint8_t{255}, uint8_t{0}) ==
          "1 of 1 elements differ, largest error 255 at (0): got 255, want 0");
    CHECK(one_off(DType::boolean, uint8_t{1}, uint8_t{0}) ==
          "1 of 1 elements differ, largest error 1 at (0): got 1, want 0");
    // Neither a double nor a signed difference could tell these.
    CHECK(one_off(DType::i64, int64_t{9007199254740993}, int64_t{9007199254740992}) ==
          "1 of 1 elements differ, largest error 1 at (0): got 9007199254740993, want 9007199254740992");
    CHECK(one_off(DType::i64, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()) ==
          "1 of 1 elements differ, largest error 1.84e+19 at (0): got -9223372036854775808, want "
          "9223372036854775807");
  }

  TEST_CASE("compare: the line counts, and names the largest error among those that fail") {
    CHECK(compare(floats({2, 3}, {1, 2, 3, 4, 5.5F, 7}), floats({2, 3}, {1, 2, 3, 4, 5, 6}), 0, 0.1).text ==
          "2 of 6 elements differ, largest error 1 (allowed 0.1) at (1,2): got 7, want 6");
    // 1000 is off by 5, and may be.
    CHECK(compare(floats({2}, {1005, 2}), floats({2}, {1000, 1}), 0.01, 0).text ==
          "1 of 2 elements differ, largest error 1 (allowed 0.01) at (1): got 2, want 1");
    CHECK(compare(floats({3}, {9, kNan, 9}), floats({3}, {1, 1, 1}), 0, 0).text ==
          "3 of 3 elements differ, largest error inf (allowed 0) at (1): got nan, want 1");
    CHECK(compare(floats({}, {1}), floats({}, {-kInf}), 0, 0).text ==
          "1 of 1 elements differ, largest error inf at (): got 1, want -inf");
  }

  TEST_CASE("compare: dtype, shape and size come first") {
    CHECK(compare(halves(DType::f16, {1}), floats({1}, {1}), 0, 0).text == "dtype is f16, want f32");
    CHECK(compare(floats({1, 2}, {1, 2}), floats({2, 1}, {1, 2}), 0, 0).text == "shape is (1,2), want (2,1)");
    CHECK(compare(floats({}, {1}), floats({1}, {1}), 0, 0).text == "shape is (), want (1)");
    CHECK(compare(floats({2}, {1}), floats({2}, {1, 2}), 0, 0).text == "4 bytes do not fit shape (2) of f32");
  }
}
