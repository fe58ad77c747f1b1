// i64: everything that integers can do, on the CPU; a clear no on a GPU.
#include <doctest/doctest.h>

#include <limits>

#include "backend/webgpu/webgpu_backend.h"
#include "support/gpus.h"
#include "weft/create.h"
#include "weft/ops.h"

using namespace weft;

namespace {

using Longs = std::vector<int64_t>;
using Ints32 = std::vector<int32_t>;

constexpr int64_t kBig = int64_t{1} << 40;

Array longs(const Longs& values, const Shape& shape) {
  return Array::from_vector(values, shape);
}
Array indices(const Ints32& values) {
  return Array::from_vector(values, {static_cast<int64_t>(values.size())});
}

}  // namespace

TEST_SUITE("base: i64") {
  const Array x = longs({kBig + 3, -kBig, 5, kBig, 7, -1}, {2, 3});

  TEST_CASE("elementwise") {
    CHECK((x * 2 + 1)[0].to_vector<int64_t>() == Longs{2 * kBig + 7, 1 - 2 * kBig, 11});
    CHECK((x % 4).to_vector<int64_t>() == Longs{3, 0, 1, 0, 3, 3});
    CHECK((x >> 38)[0].to_vector<int64_t>() == Longs{4, -4, 0});
    CHECK((longs({1, -1}, {2}) << 40).to_vector<int64_t>() == Longs{kBig, -kBig});
    CHECK((x & 6).to_vector<int64_t>() == Longs{2, 0, 4, 0, 6, 6});
    CHECK((x == kBig).to_vector<bool>() == std::vector<bool>{false, false, false, true, false, false});
    CHECK(where(x < 0, 0, x).to_vector<int64_t>() == Longs{kBig + 3, 0, 5, kBig, 7, 0});
    CHECK(maximum(x, 6)[1].to_vector<int64_t>() == Longs{kBig, 7, 6});
    CHECK(abs(x)[0].to_vector<int64_t>() == Longs{kBig + 3, kBig, 5});
    CHECK((longs({std::numeric_limits<int64_t>::max()}, {1}) + 1).item<int64_t>() ==
          std::numeric_limits<int64_t>::min());
    CHECK((x / 2).dtype() == DType::f32);
    CHECK(as(x, DType::i32).to_vector<int32_t>() == Ints32{3, 0, 5, 0, 7, -1});
  }

  TEST_CASE("reductions, scans, sorting") {
    CHECK(sum(x, {1}).to_vector<int64_t>() == Longs{8, kBig + 6});
    CHECK(max(x, {0}).to_vector<int64_t>() == Longs{kBig + 3, 7, 5});
    CHECK(min(x).item<int64_t>() == -kBig);
    CHECK(argmax(x, 1).to_vector<int32_t>() == Ints32{0, 0});
    CHECK(cumsum(x, 1).to_vector<int64_t>() == Longs{kBig + 3, 3, 8, kBig, kBig + 7, kBig + 6});
    const auto [values, order] = sort(x);
    CHECK(values.to_vector<int64_t>() == Longs{-kBig, 5, kBig + 3, -1, 7, kBig});
    CHECK(order.to_vector<int32_t>() == Ints32{1, 2, 0, 2, 1, 0});
    CHECK(topk(x, 1).values.to_vector<int64_t>() == Longs{kBig + 3, kBig});
  }

  TEST_CASE("products") {
    CHECK(matmul(x, transpose(x, 0, 1))[0][1].item<int64_t>() ==
          static_cast<int64_t>((uint64_t{kBig} + 3) * kBig - uint64_t{kBig} * 7 - 5));  // wraps
    CHECK(matmul(longs({1, 2, 3}, {3}), longs({kBig, 1, 1}, {3})).item<int64_t>() == kBig + 5);
    CHECK(einsum("ij->j", {x}).to_vector<int64_t>() == Longs{2 * kBig + 3, 7 - kBig, 4});
  }

  TEST_CASE("movement and indexing") {
    CHECK(cat({x[0], x[1]}, 0).to_vector<int64_t>() == x.to_vector<int64_t>());
    CHECK(flip(x, {1})[0].to_vector<int64_t>() == Longs{5, -kBig, kBig + 3});
    CHECK(reshape(transpose(x, 0, 1), {6}).to_vector<int64_t>() == Longs{kBig + 3, kBig, -kBig, 7, 5, -1});
    CHECK(index_select(x, indices({1, 1}), 0).to_vector<int64_t>() == Longs{kBig, 7, -1, kBig, 7, -1});
    CHECK(gather(x, reshape(indices({2, 0}), {2, 1}), 1).to_vector<int64_t>() == Longs{5, kBig});
    CHECK(scatter_add(zeros({2}, {.dtype = DType::i64}), indices({1, 1}), longs({kBig, 2}, {2}), 0)
              .to_vector<int64_t>() == Longs{0, kBig + 2});
    CHECK(tril(x).to_vector<int64_t>() == Longs{kBig + 3, 0, 0, kBig, 7, 0});
    CHECK(arange(0, 3, 1, {.dtype = DType::i64}).to_vector<int64_t>() == Longs{0, 1, 2});
  }
}

TEST_SUITE("gpu i64") {
  TEST_CASE("a GPU says that it has none, and which op asked") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      const std::string has_none = device.name() + " has no i64; use i32, or the CPU";
      const auto message = [](const auto& body) { return test::error_of(body).message; };
      CHECK(message([&] { Array::from_vector(Longs{1}, {1}, device); }) == "[array] " + has_none);
      CHECK(message([&] { longs({1}, {1}).to_device(device); }) == "[array] " + has_none);
      const Array whole = zeros({2}, {.dtype = DType::i32, .device = device});
      CHECK(message([&] { as(whole, DType::i64); }) == "[to_dtype] " + has_none);
      CHECK(message([&] { whole + as(whole, DType::u32); }) == "[add] " + has_none);
      CHECK(message([&] { arange(0, 2, 1, {.dtype = DType::i64, .device = device}); }) ==
            "[array] " + has_none);
    });
  }
}
