#include "weft/grad.h"

#include <doctest/doctest.h>

#include "backend/cpu/cpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "weft/random.h"

using namespace weft;

namespace {

using Arrays = std::vector<Array>;
using Floats = std::vector<float>;

const Array& sample() {
  static const Array x = Array::from_vector({0.5f, -1.0f, 2.0f, 0.25f, -0.75f, 1.5f}, {2, 3});
  return x;
}

std::string message_of(const std::function<void()>& body) {
  return test::error_of(body).message;
}

/// A layer whose weights are captured.
ArrayFunction layer(const Array& w) {
  return [w](const Arrays& x) { return tanh(matmul(x[0], w)); };
}

}  // namespace

TEST_SUITE("base: gradient rules") {
  TEST_CASE("an input that is used through indices or truths alone is an error that names the op") {
    const auto loss = [](const auto& f) {
      return [f](const Arrays& p) { return sum(as(f(p[0]), DType::f32)); };
    };
    const auto message = [](const char* op) {
      return std::string("[grad] ") + op +
             " has no gradient, and an input is used through it only; stop_gradient() says that this is "
             "meant";
    };
    CHECK(message_of([&] { grad(loss([](const Array& x) { return argsort(x); }))({sample()}); }) ==
          message("argsort"));
    CHECK(message_of([&] { grad(loss([](const Array& x) { return sort(x).indices; }))({sample()}); }) ==
          message("sort"));
    CHECK(message_of([&] { grad(loss([](const Array& x) { return argmax(x, 1); }))({sample()}); }) ==
          message("argmax"));
    CHECK(message_of([&] { grad(loss([](const Array& x) { return x > 0; }))({sample()}); }) == message("gt"));
    const auto meant = loss([](const Array& x) { return argsort(stop_gradient(x)); });
    CHECK(grad(meant)({sample()})[0].to_vector() == Floats(6, 0));
  }

  TEST_CASE("beside another way, indices and truths are constants") {
    const Array mask = as(sample() > 0, DType::f32);
    CHECK(grad([](const Arrays& p) { return sum(p[0] * as(p[0] > 0, DType::f32)); })({sample()})[0]
              .to_vector() == mask.to_vector());
    const auto best = [](const Arrays& p) { return sum(gather(p[0], argmax(p[0], 1, true), 1)); };
    CHECK(grad(best)({sample()})[0].to_vector() == Floats{0, 0, 1, 0, 0, 1});
    CHECK(grad([](const Arrays& p) { return sum(sort(p[0]).values * p[0]); })({sample()})[0].size() == 6);
  }

  TEST_CASE("only floats have gradients; what is not used has zeros") {
    const Array index = as(sample(), DType::i32);
    CHECK(message_of([&] { grad([](const Arrays& p) { return sum(p[0]); })({sample(), index}); }) ==
          "[grad] input 1 is i32: only floats have gradients");
    CHECK(message_of([&] { vjp({argsort(sample())}, {index}, {sample()}); }) ==
          "[grad] argsort has no gradient");
    CHECK(grad([](const Arrays& p) { return sum(p[0]); })({sample(), sample()})[1].to_vector() ==
          Floats(6, 0));
    const Array trained = sample() * 2;  // an evaluated argument hides nothing
    eval(trained);
    CHECK(grad([](const Arrays& p) { return sum(p[0]); })({trained, sample()})[1].to_vector() ==
          Floats(6, 0));
  }

  TEST_CASE("a gradient that was lost by evaluating is an error, also when another part is left") {
    const auto peeks = [](const Arrays& p) {
      const Array y = exp(p[0]);
      eval(y);
      return sum(p[0] * y);
    };
    CHECK(message_of([&] { grad(peeks)({sample()}); }).find("evaluated") != std::string::npos);
    const auto constant = [](const Arrays& p) {
      const Array y = exp(sample());
      eval(y);
      return sum(p[0] * y);
    };
    CHECK(grad(constant)({sample()})[0].to_vector() == exp(sample()).to_vector());
  }

  TEST_CASE("forward derivatives") {
    const auto [y, dy] = jvp([](const Arrays& p) { return sin(p[0]) * p[1]; }, {sample(), sample() + 3},
                             {ones_like(sample()), zeros_like(sample())});
    CHECK(y.to_vector() == (sin(sample()) * (sample() + 3)).to_vector());
    CHECK(dy.to_vector() == (cos(sample()) * (sample() + 3)).to_vector());
  }
}

TEST_SUITE("base: checkpoint") {
  TEST_CASE("same gradients, of arguments and of what is captured; computed twice") {
    const Array w = Array::from_vector({0.3f, -0.2f, 0.8f, 0.5f, -0.4f, 0.1f, 0.7f, -0.6f, 0.2f}, {3, 3});
    int calls = 0;
    const auto loss = [&](bool again) {
      return [&calls, again](const Arrays& p) {
        const ArrayFunction f = [&calls, w2 = p[1]](const Arrays& x) {
          ++calls;
          return layer(w2)({layer(w2)(x)});
        };
        const Array hidden = tanh(p[0]);
        return sum(square((again ? checkpoint(f) : f)({hidden}) + hidden));
      };
    };
    const Arrays want = grad(loss(false))({sample(), w});
    CHECK(calls == 1);
    const Arrays got = grad(loss(true))({sample(), w});
    CHECK(calls == 3);
    for (size_t i = 0; i < 2; ++i) CHECK(got[i].to_vector() == want[i].to_vector());
  }

  TEST_CASE("takes less memory") {
    const auto peak = [](bool again) {
      const Device device(std::make_shared<CpuBackend>());
      const Array w = full({64, 64}, 0.01, {.device = device}), x = ones({64, 64}, {.device = device});
      const ArrayFunction four = [](const Arrays& p) {
        Array y = p[0];
        for (int i = 0; i < 4; ++i) y = tanh(matmul(y, p[1]));
        return y;
      };
      const auto loss = grad([&](const Arrays& p) {
        Array y = p[0];
        for (int i = 0; i < 8; ++i) y = (again ? checkpoint(four) : four)({y, p[1]});
        return sum(y);
      });
      const Arrays grads = loss({x, w});
      eval(grads);
      return device.backend().memory().peak;
    };
    CHECK(peak(true) * 3 < peak(false) * 2);
  }

  TEST_CASE("what was dropped is dropped again, and the stream of keys goes on") {
    const auto drops = [](const Arrays& x) { return dropout(x[0], 0.5) * x[0]; };
    const auto draw = [&](const ArrayFunction& f) {
      set_seed(3);
      const Floats gradient = grad([&](const Arrays& p) { return sum(f(p)); })({sample()})[0].to_vector();
      return std::pair(gradient, rand({2}).to_vector());
    };
    CHECK(draw(checkpoint(drops)) == draw(drops));
    set_seed(0);
  }

  TEST_CASE("inside each other, of several arguments that are made of each other, twice differentiated") {
    const Array w = Array::from_vector({0.3f, -0.2f, 0.8f, 0.5f, -0.4f, 0.1f, 0.7f, -0.6f, 0.2f}, {3, 3});
    const auto slope = [&](bool again) {
      const ArrayFunction f = [w](const Arrays& x) { return layer(w)({x[0] * x[1]}) + x[1]; };
      const ArrayFunction g = again ? checkpoint(f) : f;
      const ArrayFunction twice = [g](const Arrays& x) { return g({g(x), x[0]}); };
      const ArrayFunction outer = again ? checkpoint(twice) : twice;
      return [outer](const Arrays& p) {
        const auto loss = [&](const Arrays& q) { return sum(outer({q[0], exp(q[0])})); };
        return sum(square(grad(loss)(p)[0]));
      };
    };
    const Floats want = grad(slope(false))({sample()})[0].to_vector(),
                 got = grad(slope(true))({sample()})[0].to_vector();
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]));
  }
}

TEST_SUITE("base: custom gradients") {
  TEST_CASE("the given gradient is used, and can be differentiated") {
    // A step that learns as if it were the identity.
    const ArrayFunction step =
        custom_gradient([](const Arrays& x) { return round(x[0]); },
                        [](const Arrays&, const Array&, const Array& g) { return Arrays{g}; });
    const auto [value, grads] =
        value_and_grad([&](const Arrays& p) { return sum(step({p[0]}) * p[0]); })({sample()});
    CHECK(value.item() == sum(round(sample()) * sample()).item());
    CHECK(grads[0].to_vector() == (round(sample()) + sample()).to_vector());

    const ArrayFunction cube = custom_gradient(
        [](const Arrays& x) { return x[0] * x[0] * x[0]; },
        [](const Arrays& x, const Array&, const Array& g) { return Arrays{g * square(x[0]) * 3}; });
    const auto slope = [&](const Arrays& p) {
      return sum(grad([&](const Arrays& q) { return sum(cube(q)); })(p)[0]);
    };
    CHECK(grad(slope)({sample()})[0].to_vector() == (sample() * 6).to_vector());
  }

  TEST_CASE("mistakes") {
    const auto backward = [](const Arrays&, const Array&, const Array& g) { return Arrays{g}; };
    CHECK(message_of([&] {
            const auto f = custom_gradient([](const Arrays& x) { return x[0] + x[1]; }, backward);
            grad([&](const Arrays& p) { return sum(f({p[0], p[0]})); })({sample()});
          }) == "[custom_gradient] 1 gradients for 2 arguments");
    CHECK(message_of([&] {
            grad([&](const Arrays& p) {
              const auto f = custom_gradient([&](const Arrays& x) { return x[0] * p[1]; }, backward);
              return sum(f({p[0]}));
            })({sample(), sample()});
          }) == "[grad] custom_gradient has no gradient for input 0");
  }
}
