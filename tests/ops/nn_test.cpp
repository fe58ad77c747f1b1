#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "array/host_tensor.h"
#include "ops/shorthand.h"
#include "weft/error.h"
#include "weft/grad.h"

using namespace weft;

namespace {

using Floats = std::vector<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Values between -1.5 and 1.5 without pattern.
Array varied(const Shape& shape, int seed = 0) {
  Floats v;
  for (int64_t i = 0; i < element_count(shape); ++i)
    v.push_back(1.5f * std::sin(static_cast<float>(i * i + 3 * i + seed) * 1.7f));
  return Array::from_vector(v, shape);
}

Array whole(const std::vector<int32_t>& values, const Shape& shape) {
  HostTensor host{DType::i32, shape, std::vector<std::byte>(values.size() * 4)};
  if (!values.empty()) std::memcpy(host.bytes.data(), values.data(), host.bytes.size());
  return Array::from_host(host);
}

void close(const Array& got, const Floats& want, double tolerance = 1e-5) {
  const Floats values = as(got, DType::f32).to_vector();
  REQUIRE(values.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(values[i] == doctest::Approx(want[i]).epsilon(tolerance));
  }
}

/// Gradient of sum(weights * f(x)) against central differences.
void check_gradient(const std::function<Array(const Array&)>& f, const Array& x) {
  const auto loss = [&](const Array& at) {
    const Array y = f(at);
    return call("sum", {y * varied(y.shape(), 5)});
  };
  const Floats slope = grad([&](const std::vector<Array>& in) { return loss(in[0]); })({x})[0].to_vector();
  Floats v = x.to_vector();
  for (size_t i = 0; i < v.size(); ++i) {
    const float kept = v[i], step = 1.0f / 64;
    v[i] = kept + step;
    const float above = loss(Array::from_vector(v, x.shape())).item();
    v[i] = kept - step;
    const float below = loss(Array::from_vector(v, x.shape())).item();
    v[i] = kept;
    CAPTURE(i);
    CHECK(slope[i] == doctest::Approx((above - below) / (2 * step)).epsilon(0.01).scale(0.2));
  }
}

}  // namespace

TEST_SUITE("base: ops nn") {
  TEST_CASE("softmax does not overflow, and sums to one along its dim") {
    close(call("softmax", {Array::from_vector({1000, 1000, -1000, 88}, {2, 2})}, {{"dim", 1}}),
          {0.5, 0.5, 0, 1});
    close(call("softmax", {Array::from_vector({-kInf, 0}, {2})}, {{"dim", 0}}), {0, 1});
    close(call("log_softmax", {Array::from_vector({1000, 0}, {2})}, {{"dim", -1}}), {0, -1000});
    close(sum(call("softmax", {varied({3, 5, 2})}, {{"dim", 1}}), {1}), Floats(6, 1));
    close(call("softmax", {Array::from_vector({7}, {})}, {{"dim", 0}}), {1});
    CHECK(call("softmax", {Array::from_vector({}, {3, 0})}, {{"dim", 1}}).size() == 0);
    check_gradient([](const Array& x) { return call("softmax", {x}, {{"dim", 0}}); }, varied({3, 2}));
    check_gradient([](const Array& x) { return call("log_softmax", {x}, {{"dim", 1}}); }, varied({2, 3}));
  }

  TEST_CASE("norms: a mean of a million does no harm, f16 is rounded once") {
    const Array far = Array::from_vector({1e6f + 1, 1e6f - 1}, {1, 2});
    close(call("layer_norm", {far}, {{"eps", 0.0}}), {1, -1});
    close(call("layer_norm", {far, Array::from_vector({2, 3}, {2}), Array::from_vector({1, 1}, {2})}),
          {3, -2});
    // 300^2 is beyond f16.
    const Array large = as(Array::from_vector({300, -300}, {2}), DType::f16);
    CHECK(call("rms_norm", {large}).dtype() == DType::f16);
    close(call("rms_norm", {large}), {1, -1});
    const Array x = varied({2, 4, 3});
    close(call("group_norm", {x}, {{"num_groups", 4}}), call("layer_norm", {x}).to_vector());
    close(call("batch_norm", {x}, {{"training", true}}),
          transpose(call("group_norm", {transpose(x, 0, 1)}, {{"num_groups", 1}}), 0, 1).to_vector());
    close(call("batch_norm",
               {Array::from_vector({5, 7}, {1, 2}), Array::from_vector({1, 1}, {2}),
                Array::from_vector({4, 9}, {2})},
               {{"eps", 0.0}}),
          {2, 2});
    check_gradient([](const Array& a) { return call("layer_norm", {a}, {{"normalized_ndim", 2}}); },
                   varied({2, 2, 3}));
    check_gradient([](const Array& a) { return call("batch_norm", {a}, {{"training", true}}); },
                   varied({3, 2, 2}));
    CHECK_THROWS_WITH_AS(call("group_norm", {x}, {{"num_groups", 3}}),
                         "[group_norm] 4 channels do not make 3 groups", Error);
  }

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

  TEST_CASE("losses: ignored rows, limits and gradients at the kinks") {
    const Array logits = varied({3, 4}), targets = whole({1, -100, 3}, {3});
    const Floats logp = call("log_softmax", {logits}, {{"dim", 1}}).to_vector();
    CHECK(call("cross_entropy", {logits, targets}).item() == doctest::Approx(-(logp[1] + logp[11]) / 2));
    close(call("nll_loss", {Array::from_vector(logp, {3, 4}), targets}, {{"reduction", std::string("none")}}),
          {-logp[1], 0, -logp[11]});
    check_gradient(
        [&](const Array& x) { return call("cross_entropy", {x, targets}, {{"label_smoothing", 0.3}}); },
        logits);
    const Array none = whole({-100, -100, -100}, {3});
    CHECK(std::isnan(call("cross_entropy", {logits, none}).item()));

    const Attrs each = {{"reduction", std::string("none")}};
    const Array x = Array::from_vector({-200, 0, 200}, {3}), t = Array::from_vector({1, 0.25, 0}, {3});
    close(call("bce_with_logits", {x, t}, each), {200, std::log(2.f), 200});
    const auto total = [&](const char* op, const Array& against) {
      return grad([=](const std::vector<Array>& in) {
        return call("sum", {call(op, {in[0], against}, {{"reduction", std::string("none")}})});
      });
    };
    close(total("bce_with_logits", t)({x})[0], {-1, 0.25, 1});
    close(call("bce", {Array::from_vector({0, 1, 0.5}, {3}), t}, each), {100, 75, std::log(2.f)});
    for (float g : total("bce", t)({Array::from_vector({0, 1, 0.5}, {3})})[0].to_vector())
      CHECK(std::isfinite(g));
    close(call("kl_div", {Array::from_vector({-kInf, 0}, {2}), Array::from_vector({0, 1}, {2})}, each),
          {0, 0});
    close(total("kl_div", Array::from_vector({0, 1}, {2}))({Array::from_vector({-kInf, 0}, {2})})[0],
          {0, -1});
    close(total("smooth_l1_loss",
                Array::from_vector({0, 0, 0}, {3}))({Array::from_vector({-3, 0.5, 0}, {3})})[0],
          {-1, 0.5, 0});
    check_gradient([&](const Array& a) { return call("focal_bce", {a, t}, {{"gamma", 0.5}}); }, varied({3}));
    CHECK_THROWS_WITH_AS(call("mse_loss", {x, t}, {{"reduction", std::string("batchmean")}}),
                         "[mse_loss] there is no reduction 'batchmean'", Error);

    const Array zero = Array::from_vector({0, 0}, {1, 2});
    const auto similarity = grad([&](const std::vector<Array>& in) {
      return call("sum", {call("cosine_similarity", {in[0], varied({1, 2})})});
    });
    for (float g : similarity({zero})[0].to_vector()) CHECK(std::isfinite(g));
  }

  TEST_CASE("optim counts its inputs and steps each parameter by itself") {
    const Array p = Array::from_vector({1, 2}, {2}), g = Array::from_vector({10, -10}, {2});
    const auto two = apply("optim", {p, g, g, p, p, g},
                           {{"kind", std::string("sgd")}, {"steps", 2}, {"n_params", 2}, {"lr", 0.1}});
    REQUIRE(two.size() == 2);
    close(two[0], {1 - 1 - 0.1f, 2 + 1 - 0.2f});
    close(two[1], {10 - 0.1f - 1, -10 - 0.2f + 1});
    close(call("optim", {p, g}, {{"kind", std::string("lion")}, {"steps", 1}, {"n_params", 1}, {"lr", 0.5}}),
          {0.5, 2.5});
    CHECK_THROWS_AS(
        call("optim", {p}, {{"kind", std::string("sgd")}, {"steps", 1}, {"n_params", 1}, {"lr", 0.1}}),
        Error);
    CHECK_THROWS_WITH_AS(
        call("optim", {p, g},
             {{"kind", std::string("nesterov")}, {"steps", 1}, {"n_params", 1}, {"lr", 0.1}}),
        "[optim] kind 'nesterov' needs the attribute 'momentum'", Error);
  }
}
