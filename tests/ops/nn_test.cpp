#include "ops/values.h"
#include "weft/error.h"

using namespace weft;
using namespace weft::test;

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

  TEST_CASE("cosine_similarity broadcasts before it measures") {
    const Shape rows = {3, 4, 5};
    const auto check = [&](const Shape& shape, int64_t dim) {
      CAPTURE(to_string(shape));
      const Array a = varied(shape, 2), b = varied(rows, 1);
      const auto similarity = [&](const Array& x, const Array& y) {
        return call("cosine_similarity", {x, y}, {{"dim", dim}});
      };
      const Array want = similarity(expand(a, rows), b);
      CHECK(similarity(a, b).to_vector() == want.to_vector());
      CHECK(similarity(b, a).to_vector() == want.to_vector());
      check_gradient([&](const Array& x) { return similarity(x, b); }, a);
    };
    check({3, 1, 5}, 1);
    check({5}, -1);
    check({4, 5}, 1);
    check({1}, 0);
    CHECK_THROWS_WITH_AS(call("cosine_similarity", {varied({5}), varied({4, 5})}, {{"dim", 2}}),
                         "[cosine_similarity] dim 2 is outside of an array of 2 dims", Error);
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
