#include "ops/values.h"
#include "weft/error.h"

using namespace weft;
using namespace weft::test;

TEST_SUITE("base: ops attention") {
  TEST_CASE("sdpa: masks, windows and shared heads against loops") {
    const int64_t heads = 4, key_heads = 2, t = 3, s = 5, d = 2;
    const Array q = varied({heads, t, d}), k = varied({key_heads, s, d}, 1), v = varied({key_heads, s, d}, 2);
    const Array bias = varied({t, s}, 3);
    const Floats qs = q.to_vector(), ks = k.to_vector(), vs = v.to_vector(), biases = bias.to_vector();
    Floats want;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < t; ++i) {
        double total = 0, out[2] = {0, 0};
        for (int64_t j = 0; j <= i; ++j) {
          if (std::abs(i - j) >= 2) continue;
          const size_t key = static_cast<size_t>((h / 2 * s + j) * d),
                       query = static_cast<size_t>((h * t + i) * d);
          const double score = 3 * std::tanh((qs[query] * ks[key] + qs[query + 1] * ks[key + 1]) * 0.7 / 3) +
                               biases[static_cast<size_t>(i * s + j)];
          total += std::exp(score);
          for (size_t e = 0; e < 2; ++e) out[e] += std::exp(score) * vs[key + e];
        }
        for (double o : out) want.push_back(static_cast<float>(o / total));
      }
    const Attrs attrs = {
        {"causal", true}, {"window", 2}, {"enable_gqa", true}, {"softcap", 3.0}, {"scale", 0.7}};
    close(call("sdpa", {q, k, v, bias}, attrs), want);
    check_gradient([&](const Array& x) { return call("sdpa", {x, k, v, bias}, attrs); }, q);
    check_gradient([&](const Array& x) { return call("sdpa", {q, x, v, bias}, attrs); }, k);
    CHECK(call("sdpa", {q, varied({key_heads, 0, d}), varied({key_heads, 0, 6})}, {{"enable_gqa", true}})
              .shape() == Shape{heads, t, 6});
  }

  TEST_CASE("sdpa: a row with nothing visible is 0, and so is its gradient") {
    const Array q = varied({2, 2}), k = varied({3, 2}, 1), v = varied({3, 2}, 2);
    const Array visible = as(Array::from_vector({0, 0, 0, 1, 1, 0}, {2, 3}), DType::boolean);
    const Array hidden = Array::from_vector({-kInf, -kInf, -kInf, 0, 0, -kInf}, {2, 3});
    for (const Array& mask : {visible, hidden}) {
      const Floats y = call("sdpa", {q, k, v, mask}).to_vector();
      CHECK((y[0] == 0 && y[1] == 0 && y[2] != 0));
      const auto loss = [&](const std::vector<Array>& in) {
        return call("sum", {call("sdpa", {in[0], in[1], in[2], mask})});
      };
      for (const Array& g : grad(loss)({q, k, v}))
        for (float value : g.to_vector()) CHECK(std::isfinite(value));
      close(slice_dim(grad(loss)({q, k, v})[0], 0, 0, 1), {0, 0});
    }
    CHECK_THROWS_AS(call("sdpa", {q, varied({3, 4}), v}), Error);
  }

  TEST_CASE("sdpa: numbers that a mask adds to all scores of a row change no gradient") {
    // Queries of zeros: large numbers round nothing away.
    const Array q = Array::from_vector(Floats(8), {2, 4}), k = varied({3, 4}), v = varied({3, 4}, 1);
    const auto gradients = [&](float added) {
      const Array mask = Array::from_vector({0, 1, 2, added, added, added}, {2, 3});
      const auto loss = [](const std::vector<Array>& in) {
        return sum(call("sdpa", in) * varied({2, 4}, 2));
      };
      Floats all;
      for (const Array& g : grad(loss)({q, k, v, mask}))
        for (float x : g.to_vector()) all.push_back(x);
      return all;
    };
    const Floats want = gradients(0);
    for (float added : {-1e9f, std::numeric_limits<float>::lowest(), 1e9f}) {
      CAPTURE(added);
      close(Array::from_vector(gradients(added), {std::ssize(want)}), want);
    }
  }

  TEST_CASE("rope: positions on the device turn as far as the tables do") {
    const Array x = varied({1, 2, 3, 8});
    for (const char* layout : {"neox", "interleaved"})
      for (int64_t offset : {0, 4095, 131000}) {
        const Attrs common = {{"layout", std::string(layout)}, {"rotary_dim", 6}};
        Attrs from = common;
        from.set("offset", offset);
        const auto first = static_cast<int32_t>(offset);
        const Floats want = call("rope", {x}, from).to_vector();
        close(call("rope", {x, whole({first, first + 1, first + 2}, {3})}, common), want, 2e-4);
        close(call("rope", {x, whole({first, first + 1, first + 2}, {1, 3})}, common), want, 2e-4);
      }
    const Array quarter =
        Array::from_vector({1, 2, 3, 4}, {1, 1, 1, 4});  // pairs (1,3) and (2,4), the second turned by 1e-2
    close(call("rope", {quarter}, {{"offset", 1}}),
          {std::cos(1.f) - 3 * std::sin(1.f), 2 * std::cos(.01f) - 4 * std::sin(.01f),
           3 * std::cos(1.f) + std::sin(1.f), 4 * std::cos(.01f) + 2 * std::sin(.01f)});
    check_gradient(
        [](const Array& a) {
          return call("rope", {a},
                      {{"layout", std::string("interleaved")}, {"rotary_dim", 2}, {"offset", 3}});
        },
        varied({1, 1, 2, 4}));
    CHECK_THROWS_AS(call("rope", {x}, {{"rotary_dim", 3}}), Error);
  }
}
