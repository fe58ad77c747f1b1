#include "weft/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "array/host_tensor.h"
#include "backend/webgpu/webgpu_backend.h"
#include "base/threefry.h"
#include "ops/shorthand.h"
#include "support/gpus.h"

using namespace weft;

namespace {

using Words = std::array<uint32_t, 2>;

struct Moments {
  double mean = 0, variance = 0, low = 0, high = 0;
};

Moments moments(const Array& x) {
  const std::vector<float> values = x.to_vector();
  Moments m{.low = values[0], .high = values[0]};
  for (const float v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.low = std::min<double>(m.low, v);
    m.high = std::max<double>(m.high, v);
  }
  for (const float v : values) m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

/// How often each of `count` values is there.
std::vector<int> histogram(const Array& x, size_t count) {
  std::vector<int> often(count);
  for (const int32_t v : x.to_vector<int32_t>()) ++often.at(static_cast<size_t>(v));
  return often;
}

}  // namespace

TEST_SUITE("base: random") {
  TEST_CASE("Threefry-2x32 with 20 rounds has the known answers of Random123") {
    constexpr uint32_t kOnes = 0xffffffff;
    CHECK(threefry({0, 0}, {0, 0}) == Words{0x6b200159, 0x99ba4efe});
    CHECK(threefry({kOnes, kOnes}, {kOnes, kOnes}) == Words{0x1cb996fc, 0xbb002be7});
    CHECK(threefry({0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}) == Words{0xc4923a9c, 0x483df7a0});
  }

  TEST_CASE("the bits of an element depend on the key and its index only") {
    const Array key = random_key(0x123456789abcdef0);
    CHECK(key.to_vector<uint32_t>() == std::vector<uint32_t>{0x12345678, 0x9abcdef0});
    const std::vector<uint32_t> bits = random_bits({300, 70}, {.key = key}).to_vector<uint32_t>();
    for (const size_t i : {0, 1, 8191, 8192, 20999})
      CHECK(bits[i] == random_word({0x12345678, 0x9abcdef0}, i));
    const std::vector<uint32_t> fewer = random_bits({5}, {.key = key}).to_vector<uint32_t>();
    CHECK(std::equal(fewer.begin(), fewer.end(), bits.begin()));
    CHECK(random_bits({0, 3}, {.key = key}).to_vector<uint32_t>().empty());
  }

  TEST_CASE("a seed starts the stream anew; every draw takes another key") {
    set_seed(7);
    const std::vector<float> first = rand({4}).to_vector(), second = rand({4}).to_vector();
    CHECK(first != second);
    set_seed(7);
    CHECK(rand({4}).to_vector() == first);
    set_seed(8);
    CHECK(rand({4}).to_vector() != first);
    set_seed(0);
  }

  TEST_CASE("keys that were split are different and can be used as keys") {
    const std::vector<Array> keys = split_key(random_key(1), 3);
    REQUIRE(keys.size() == 3);
    CHECK(keys[0].to_vector<uint32_t>() != keys[1].to_vector<uint32_t>());
    const std::vector<uint32_t> words = keys[2].to_vector<uint32_t>();
    CHECK(random_bits({2}, {.key = keys[2]}).to_vector<uint32_t>()[1] ==
          random_word({words[0], words[1]}, 1));
  }

  TEST_CASE("distributions") {
    const Array key = random_key(3);
    constexpr int64_t kCount = 100'000;
    const Moments u = moments(rand({kCount}, {.key = key}));
    CHECK(u.mean == doctest::Approx(0.5).epsilon(0.01));
    CHECK(u.variance == doctest::Approx(1.0 / 12).epsilon(0.02));
    CHECK((u.low >= 0 && u.high < 1));

    const Moments wide = moments(uniform({kCount}, -3, 5, {.key = key}));
    CHECK(wide.mean == doctest::Approx(1).epsilon(0.02));
    CHECK((wide.low >= -3 && wide.low < -2.99 && wide.high <= 5 && wide.high > 4.99));

    const Array z = randn({kCount}, {.key = key});
    const Moments n = moments(z), fourth = moments(square(square(z)));
    CHECK(std::abs(n.mean) < 0.01);
    CHECK(n.variance == doctest::Approx(1).epsilon(0.02));
    CHECK(fourth.mean == doctest::Approx(3).epsilon(0.05));

    for (const DType dtype : {DType::f16, DType::bf16}) {
      CAPTURE(name_of(dtype));
      const Moments half = moments(rand({kCount}, {.dtype = dtype, .key = key}));
      CHECK((half.low == 0 && half.high < 1));
      CHECK(half.mean == doctest::Approx(0.5).epsilon(0.02));
      CHECK(randn({4}, {.dtype = dtype, .key = key}).dtype() == dtype);
    }

    const std::vector<int> dice = histogram(randint(-2, 4, {kCount}, {.key = key}) + 2, 6);
    for (const int often : dice) CHECK(often == doctest::Approx(kCount / 6.0).epsilon(0.05));
    const Moments bytes = moments(randint(-128, 128, {kCount}, {.dtype = DType::i8, .key = key}));
    CHECK((bytes.low == -128 && bytes.high == 127));

    CHECK(moments(bernoulli(0.3, {kCount}, {.dtype = DType::f32, .key = key})).mean ==
          doctest::Approx(0.3).epsilon(0.02));
    CHECK(bernoulli(0.3, {2}).dtype() == DType::boolean);
  }

  TEST_CASE("categorical draws with the probabilities of softmax") {
    const Array logits = log(Array::from_vector({0.1f, 0.2f, 0.3f, 0.4f}, {4}));
    constexpr int64_t kCount = 50'000;
    const Array drawn = categorical(expand(logits, {kCount, 4}), -1, random_key(5));
    CHECK(drawn.shape() == Shape{kCount});
    const std::vector<int> often = histogram(drawn, 4);
    for (size_t i = 0; i < 4; ++i)
      CHECK(often[i] == doctest::Approx(0.1 * static_cast<double>((i + 1) * kCount)).epsilon(0.05));
    const Array never = Array::from_vector({-INFINITY, 0, -INFINITY}, {3});
    CHECK(categorical(expand(never, {64, 3}), 1).to_vector<int32_t>() == std::vector<int32_t>(64, 1));
  }

  TEST_CASE("a permutation has every number once, in another order") {
    std::vector<int32_t> order = permutation(1000, {.key = random_key(2)}).to_vector<int32_t>();
    CHECK(!std::ranges::is_sorted(order));
    std::ranges::sort(order);
    std::vector<int32_t> all(1000);
    std::iota(all.begin(), all.end(), 0);
    CHECK(order == all);
  }

  TEST_CASE("dropout keeps the mean; its ends are nothing and everything") {
    const Array x = call("full", {}, {{"shape", Ints{20'000}}, {"value", 2.0}}), key = random_key(4);
    const std::vector<float> values = dropout(x, 0.25, key).to_vector();
    const auto zeros = std::ranges::count(values, 0.0f);
    CHECK(zeros == doctest::Approx(5'000).epsilon(0.05));
    CHECK(zeros + std::ranges::count(values, 2.0f / 0.75f) == 20'000);
    CHECK(dropout(x, 0, key).to_vector() == x.to_vector());
    CHECK(dropout(x, 1, key).to_vector() == std::vector<float>(20'000, 0.0f));
  }

  TEST_CASE("mistakes") {
    CHECK(test::error_of([] { random_bits({2}, {.key = Array::from_vector({1, 2}, {2})}); }).message ==
          "[random_bits] the key is f32 (2), expected u32 (2)");
    CHECK(test::error_of([] { rand({-1}); }).message == "[uniform] shape (-1) has a negative size");
    CHECK(test::error_of([] { rand({1}, {.dtype = DType::i32}); }).message ==
          "[uniform] makes floats, not i32");
    CHECK(test::error_of([] { randint(3, 3, {1}); }).message ==
          "[randint] from 3 to below 3: 1 to 2^32-1 numbers are possible");
    CHECK(test::error_of([] { dropout(Array::from_vector({1}, {1}), 1.5); }).message ==
          "[dropout] p is 1.5, not a probability");
  }
}

TEST_SUITE("gpu random") {
  TEST_CASE("every device draws the same numbers") {
    const auto draw = [](const Device& device) {
      const std::vector<Array> keys = split_key(random_key(11, device), 6);
      return std::vector<Array>{random_bits({3, 1001}, {.key = keys[0]}),
                                rand({5000}, {.key = keys[1]}),
                                rand({333}, {.dtype = DType::f16, .key = keys[1]}),
                                randint(-7, 1000, {777}, {.key = keys[2]}),
                                bernoulli(0.37, {999}, {.key = keys[3]}),
                                permutation(500, {.key = keys[4]}),
                                randn({5000}, {.key = keys[5]})};
    };
    std::vector<HostTensor> want;
    for (const Array& x : draw({})) want.push_back(x.to_host());
    const std::vector<float> normal = draw({}).back().to_vector();
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const std::vector<Array> got = draw(Device(std::make_shared<WebgpuBackend>(gpu.open())));
      for (size_t i = 0; i + 1 < got.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i].to_host().bytes == want[i].bytes);
      }
      const std::vector<float> close = got.back().to_vector();
      for (size_t i = 0; i < close.size(); ++i) REQUIRE(std::abs(close[i] - normal[i]) < 4e-6f);
    });
  }
}
