#include "weft/array.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "array/element.h"
#include "backend/webgpu/webgpu_backend.h"
#include "support/gpus.h"
#include "weft/create.h"
#include "weft/grad.h"
#include "weft/ops.h"

using namespace weft;

namespace {

using Ints32 = std::vector<int32_t>;
using Bools = std::vector<bool>;
using Floats = std::vector<float>;

Array ints(const Ints32& values) {
  return Array::from_vector(values, {static_cast<int64_t>(values.size())});
}

template <Element T>
void check_round_trip(const std::vector<T>& values, const Device& device) {
  CAPTURE(name_of(dtype_of<T>()));
  const Array x = Array::from_vector(values, {1, static_cast<int64_t>(values.size())}, device);
  CHECK(x.dtype() == dtype_of<T>());
  CHECK(x.to_vector<T>() == values);
  CHECK(x.to_device({}).to_vector<T>() == values);
}

void check_round_trips(const Device& device) {
  check_round_trip<float>({1.5f, -0.0f, INFINITY}, device);
  check_round_trip<int32_t>({-1, 7, std::numeric_limits<int32_t>::min()}, device);
  check_round_trip<uint32_t>({0, 0xffffffff, 1}, device);
  check_round_trip<uint8_t>({0, 255, 3, 4, 5}, device);
  check_round_trip<int8_t>({-128, 127, 0}, device);
  check_round_trip<bool>({true, false, true, true, false}, device);
  check_round_trip<Float16>({Float16(1.5f), Float16(65504), Float16(-0.25f)}, device);
  check_round_trip<BFloat16>({BFloat16(1.5f), BFloat16(1e30f), BFloat16(-0.25f)}, device);
}

}  // namespace

TEST_SUITE("base: arrays") {
  TEST_CASE("vectors of every dtype go in and come out") {
    check_round_trips({});
    check_round_trip<int64_t>({std::numeric_limits<int64_t>::max(), -1}, {});
  }

  TEST_CASE("a vector's type has to hold every value of the dtype") {
    CHECK(as(ints({1, 200}), DType::u8).to_vector() == Floats{1, 200});
    CHECK(as(ints({1, 0}), DType::boolean).to_vector<int64_t>() == std::vector<int64_t>{1, 0});
    CHECK(as(ints({1, 2}), DType::f16).to_vector() == Floats{1, 2});
    CHECK(ints({-5}).item<int64_t>() == -5);
    CHECK(test::error_of([] { ints({1}).to_vector(); }).message ==
          "[to_vector] f32 does not hold every value of i32; convert with to_dtype");
    CHECK(test::error_of([] { ints({1}).to_vector<uint32_t>(); }).kind == "invalid");
    CHECK(test::error_of([] { ints({1}).to_vector<bool>(); }).kind == "invalid");
    CHECK(test::error_of([] { ints({1, 2}).item<int32_t>(); }).message ==
          "[item] an array of shape (2) has no single value");
  }

  TEST_CASE("copies are values") {
    Array x = ints({1, 2, 3});
    const Array before = x;
    x += 10;
    x *= 2;
    CHECK(x.to_vector<int32_t>() == Ints32{22, 24, 26});
    CHECK(before.to_vector<int32_t>() == Ints32{1, 2, 3});
  }

  TEST_CASE("operators compare, and work on bits") {
    const Array a = ints({1, 2, 3}), b = ints({3, 2, 1});
    CHECK((a == b).to_vector<bool>() == Bools{false, true, false});
    CHECK((a != 2).to_vector<bool>() == Bools{true, false, true});
    CHECK((a < b).to_vector<bool>() == Bools{true, false, false});
    CHECK((2 <= a).to_vector<bool>() == Bools{false, true, true});
    CHECK((a > 1.5).to_vector<bool>() == Bools{false, true, true});
    CHECK((a >= b).to_vector<bool>() == Bools{false, true, true});
    CHECK((a & b).to_vector<int32_t>() == Ints32{1, 2, 1});
    CHECK((a | 4).to_vector<int32_t>() == Ints32{5, 6, 7});
    CHECK((a ^ b).to_vector<int32_t>() == Ints32{2, 0, 2});
    CHECK((a << 3).to_vector<int32_t>() == Ints32{8, 16, 24});
    CHECK((ints({-8, 9}) >> 1).to_vector<int32_t>() == Ints32{-4, 4});
    CHECK((~a).to_vector<int32_t>() == Ints32{-2, -3, -4});
    CHECK((~as(a, DType::u8)).to_vector<int32_t>() == Ints32{254, 253, 252});
    CHECK((~(a == b)).to_vector<bool>() == Bools{true, false, true});
    CHECK(((a < 3) & (b < 3)).to_vector<bool>() == Bools{false, true, false});
    CHECK((ints({-7, 7}) % 3).to_vector<int32_t>() == Ints32{2, 1});
    CHECK((10 - a).to_vector<int32_t>() == Ints32{9, 8, 7});
    CHECK(all(a == a).item<bool>());
  }

  TEST_CASE("elements and slices, as in Python") {
    const Array x = Array::from_vector({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
    CHECK(x[1].to_vector() == Floats{4, 5, 6, 7});
    CHECK(x[-1][2].item() == 10);
    CHECK(slice(x, {{1, 3}, {.step = -2}}).to_vector() == Floats{7, 5, 11, 9});
    CHECK(slice(x, {{}, {-2}}).to_vector() == Floats{2, 3, 6, 7, 10, 11});
    CHECK(slice(x, {{.stop = -5}}).shape() == Shape{0, 4});
    CHECK(slice(x, {}).to_vector() == x.to_vector());
    CHECK(test::error_of([&] { x[3]; }).message == "[array] there is no element 3 in a dim of 3");
    CHECK(test::error_of([&] { x[0][0][0]; }).message == "[array] a scalar has no element 0");
  }

  TEST_CASE("arrays made of nothing") {
    CHECK(zeros({2, 2}).to_vector() == Floats{0, 0, 0, 0});
    CHECK(ones({3}, {.dtype = DType::u8}).dtype() == DType::u8);
    CHECK(full_like(ints({1, 2}), 7).to_vector<int32_t>() == Ints32{7, 7});
    CHECK(arange(3).to_vector() == Floats{0, 1, 2});
    CHECK(arange(5, 0, -2, {.dtype = DType::i32}).to_vector<int32_t>() == Ints32{5, 3, 1});
    CHECK(linspace(0, 1, 3).to_vector() == Floats{0, 0.5f, 1});
    CHECK(eye(2, 3).to_vector() == Floats{1, 0, 0, 0, 1, 0});
  }

  TEST_CASE("numbers alone and missing arrays are told") {
    CHECK(test::error_of([] { ints({1}) + Array(); }).message == "[add] input 1 is missing");
    CHECK(test::error_of([] { Array() * 2; }).message == "[mul] input 0 is missing");
    CHECK(test::error_of([] { maximum(1, 2); }).message == "[array] two numbers make no array");
  }
}

TEST_SUITE("gpu arrays") {
  TEST_CASE("vectors of every dtype go in and come out") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      check_round_trips(Device(std::make_shared<WebgpuBackend>(gpu.open())));
    });
  }

  TEST_CASE("arrays move between devices; their gradients do not") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      const Array x = Array::from_vector({1, 2, 3, 4, 5, 6}, {2, 3});
      const Array there = transpose(x, 0, 1).to_device(device);
      CHECK(there.device() == device);
      CHECK((there * 2).to_device({}).to_vector() == Floats{2, 8, 4, 10, 6, 12});
      CHECK(there.to_device(device).node() == there.node());
      CHECK(test::error_of([&] { x + there; }).message.find("use to_device") != std::string::npos);
      synchronize(device);

      const auto moved = grad([&](const std::vector<Array>& p) { return sum(p[0].to_device(device)); });
      CHECK(test::error_of([&] { moved({x}); }).kind == "invalid");
      const auto here = grad([&](const std::vector<Array>& p) { return sum(p[0] * there); });
      CHECK(here({there})[0].to_vector() == there.to_vector());
    });
  }
}
