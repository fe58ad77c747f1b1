// What the planner makes of named patterns, counted in kernels; plans that are kept; compiled functions.
#include "plan/plan.h"

#include <doctest/doctest.h>

#include <cmath>

#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "plan/eval.h"
#include "support/gpus.h"
#include "weft/weft.h"

using namespace weft;

namespace {

Array values(const Shape& shape, double start = 0, const Device& device = {}) {
  std::vector<float> v(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>(std::sin(start + 0.7 * static_cast<double>(i)));
  return Array::from_vector(v, shape, device);
}

/// Kernels that an evaluation of what `make` returns takes.
template <typename Make>
uint64_t kernels(Make make) {
  const Array y = make();
  const uint64_t before = eval_counters().steps;
  eval(y);
  return eval_counters().steps - before;
}

/// Held values of which those who are evaluated first read only the beginning.
void check_partly_read(const Device& device) {
  const Array x = values({4, 6}, 0, device), w = values({6, 5}, 1, device);
  const Array m = matmul(x, w);
  eval(m);
  {
    const Array e = exp(matmul(x, w)), first = -slice_dim(e, 0, 0, 2);
    eval(first);
    CHECK(e.to_vector() == exp(m).to_vector());
  }
  {  // one per row
    const Array e = exp(max(matmul(x, w), {1}, true)), some = values({2, 7}, 2, device),
                sums = sum(some * slice_dim(e, 0, 0, 2), {1});
    eval(sums);
    CHECK(e.to_vector() == exp(max(m, {1}, true)).to_vector());
  }
  {  // cheap enough to be computed twice
    const Array half = as(x, DType::f16), wide = as(half, DType::f32),
                first = slice_dim(wide, 0, 0, 2) + slice_dim(wide, 0, 1, 3);
    eval(half);
    eval(std::vector<Array>{wide, first});
    CHECK(wide.to_vector() == half.to_vector());
  }
}

/// Attention and a feed-forward net with norms and residuals, as language models have them.
Array transformer_block(const Array& x, const std::vector<Array>& w) {
  const int64_t b = x.shape(0), t = x.shape(1), d = x.shape(2), heads = 2;
  const auto norm = [](const Array& h, const Array& weight) {
    return call("rms_norm", {h, weight}, {{"eps", 1e-5}});
  };
  const auto split = [&](const Array& qkv, int64_t part) {  // (b, heads, t, d / heads)
    const Array p = slice_dim(qkv, -1, part * d, (part + 1) * d);
    return transpose(reshape(p, {b, t, heads, d / heads}), 1, 2);
  };
  const Array qkv = call("linear", {norm(x, w[0]), w[1]});
  const Array mixed = call("sdpa", {split(qkv, 0), split(qkv, 1), split(qkv, 2)}, {{"causal", true}});
  const Array h = x + call("linear", {reshape(transpose(mixed, 1, 2), {b, t, d}), w[2], w[3]});
  return h + call("linear", {gelu(call("linear", {norm(h, w[4]), w[5], w[6]})), w[7], w[8]});
}

std::vector<Array> block_weights(int64_t d, const Device& device) {
  return {values({d}, 1, device),     values({3 * d, d}, 2, device), values({d, d}, 3, device),
          values({d}, 4, device),     values({d}, 5, device),        values({4 * d, d}, 6, device),
          values({4 * d}, 7, device), values({d, 4 * d}, 8, device), values({d}, 9, device)};
}

}  // namespace

TEST_SUITE("base: plan") {
  TEST_CASE("reductions take the work before and after them along") {
    const Array x = values({8, 50});
    CHECK(kernels([&] { return sum(square(x - 1.0), {1}); }) == 1);
    CHECK(kernels([&] { return sqrt(mean(square(x), {1})) * 2.0; }) == 1);
    CHECK(kernels([&] { return mean(square(x - 1.0)); }) == 1);
    CHECK(kernels([&] { return sum(square(x), {0}); }) == 1);
  }

  TEST_CASE("softmax and norms are one kernel") {
    const Array x = values({8, 50}), w = values({50}, 1), b = values({50}, 2);
    CHECK(kernels([&] { return call("softmax", {x}, {{"dim", -1}}); }) == 1);
    CHECK(kernels([&] { return call("log_softmax", {x * 3.0}, {{"dim", -1}}); }) == 1);
    CHECK(kernels([&] { return call("layer_norm", {x, w, b}); }) == 1);
    CHECK(kernels([&] { return call("rms_norm", {as(x, DType::f16), as(w, DType::f16)}); }) == 1);
  }

  TEST_CASE("a matmul takes bias, activation and residual along") {
    const Array x = values({2, 7, 16}), w = values({16, 10}), b = values({10}), r = values({2, 7, 10});
    CHECK(kernels([&] { return matmul(x, w) + b; }) == 1);
    CHECK(kernels([&] { return r + relu(matmul(x, w) + b) * 0.5; }) == 1);
    const Attrs packed{{"type", "q4_0"}, {"n", 3}, {"k", 32}};
    const Array x32 = values({2, 32}), b3 = values({3});
    const Array words = call("repack", {as(values({3, 18}), DType::u8)}, {{"type", "q4_0"}, {"k", 32}});
    eval(words);
    CHECK(kernels([&] { return relu(call("qmatmul_packed", {x32, words}, packed) + b3); }) == 1);
    CHECK(kernels([&] { return call("softmax", {matmul(x, w) + b}, {{"dim", -1}}); }) == 2);
  }

  TEST_CASE("a transformer block is at most 8 kernels") {
    const Array x = values({2, 6, 16});
    const std::vector<Array> w = block_weights(16, {});
    CHECK(kernels([&] { return transformer_block(x, w); }) <= 8);
  }

  TEST_CASE("views between elementwise ops are part of the kernel") {
    const Array x = values({6, 4});
    CHECK(kernels([&] { return exp(transpose(square(x), 0, 1)) + 1.0; }) == 1);
    CHECK(kernels([&] { return reshape(x * 2.0, {3, 8}) * values({8}); }) == 1);
    CHECK(kernels([&] { return slice_dim(x * 2.0, 0, 1, 3) + slice_dim(square(x), 0, 2, 4); }) == 1);
  }

  TEST_CASE("values that somebody still holds are kept, unless one kernel can make them again") {
    const Array x = values({4, 4});
    const Array product = matmul(x, x), y = product + 1.0, loss = sum(y);
    eval(loss);
    CHECK(kernels([&] { return y; }) <= 1);  // product is there: not multiplied again
    const uint64_t before = eval_counters().steps;
    eval(product);
    CHECK(eval_counters().steps == before);
  }

  TEST_CASE("values that are kept are whole, also when only a part is read") {
    check_partly_read(Device());
  }

  TEST_CASE("a known structure builds no plan, whatever its numbers are") {
    const auto step = [](double rate, const Array& x) { return x - tanh(x) * rate; };
    Array x = values({5});
    eval(step(0.5, x));
    const EvalCounters before = eval_counters();
    for (int i = 0; i < 10; ++i) {
      x = step(0.1 * i, x);
      eval(x);
    }
    CHECK(eval_counters().plans_built == before.plans_built);
    CHECK(eval_counters().plans_reused == before.plans_reused + 10);
    CHECK(step(0.25, values({1})).item() == doctest::Approx(std::sin(0.0) - std::tanh(std::sin(0.0)) * 0.25));
    CHECK(step(4.0, values({1}, 1)).item() ==
          doctest::Approx(std::sin(1.0) - std::tanh(std::sin(1.0)) * 4.0));
  }

  TEST_CASE("20,000 training steps keep memory flat") {
    const Device cpu;
    Array w1 = values({4, 8}), w2 = values({8, 1}, 1);
    const Array x = values({16, 4}, 2), target = values({16, 1}, 3);
    const auto loss = value_and_grad([&](const std::vector<Array>& p) {
      return mean(square(matmul(tanh(matmul(x, p[0])), p[1]) - target));
    });
    float first = 0;
    uint64_t active = 0;
    EvalCounters counted;
    for (int i = 0; i < 20'000; ++i) {
      const auto [value, grads] = loss({w1, w2});
      w1 = w1 - grads[0] * 0.05;
      w2 = w2 - grads[1] * 0.05;
      eval(std::vector<Array>{value, w1, w2});
      if (i == 0) first = value.item();
      if (i == 10) active = cpu.backend().memory().active, counted = eval_counters();
      if (i == 19'999) CHECK(value.item() < first / 4);
    }
    CHECK(cpu.backend().memory().active <= active);
    CHECK(eval_counters().plans_built == counted.plans_built);
  }
}

TEST_SUITE("base: compile") {
  TEST_CASE("a compiled function is recorded once per shape") {
    int calls = 0;
    const Array captured = values({3, 3}, 5);
    const auto f = compile([&](const std::vector<Array>& a) -> std::vector<Array> {
      ++calls;
      return {exp(a[0]) * captured, a[1], transpose(a[0], 0, 1), captured};
    });
    for (int i = 0; i < 3; ++i) {
      const Array x = values({3, 3}, i), y = values({4}, i);
      const std::vector<Array> out = f({x, y});
      CHECK(calls == 1);
      CHECK(out[0].to_vector() == (exp(x) * captured).to_vector());
      CHECK(out[1].to_vector() == y.to_vector());
      CHECK(out[2].to_vector() == transpose(x, 0, 1).to_vector());
      CHECK(out[3].to_vector() == captured.to_vector());
    }
    f({values({1, 3}), values({4})});
    CHECK(calls == 2);
    f({captured + 0.0, captured});  // what is captured may be an argument too
    CHECK(calls == 3);
    CHECK(f({captured, captured})[0].to_vector() == (exp(captured) * captured).to_vector());
  }

  TEST_CASE("gradients are compiled inside, and refused outside") {
    const auto f = compile([](const std::vector<Array>& a) -> std::vector<Array> {
      const auto [value, grads] =
          value_and_grad([](const std::vector<Array>& p) { return sum(square(p[0]) * p[1]); })(a);
      return {value, grads[0]};
    });
    const Array x = values({4}), w = values({4}, 1);
    CHECK(f({x, w})[1].to_vector() == (x * w * 2.0).to_vector());
    const Array y = f({x, w})[0];
    CHECK(test::error_of([&] { vjp({y}, {y}, {x}); }).kind == "invalid");
  }
}

TEST_SUITE("gpu plan") {
  TEST_CASE("values that are kept are whole, also when only a part is read") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      check_partly_read(Device(std::make_shared<WebgpuBackend>(gpu.open())));
    });
  }

  TEST_CASE("a device that nobody holds any more is closed, with its plans") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      std::weak_ptr<gpu::Device::State> opened;
      {
        const auto backend = std::make_shared<WebgpuBackend>(gpu.open());
        opened = backend->device().state();
        CHECK(exp(values({8}, 0, Device(backend))).to_vector<float>().size() == 8);
      }
      CHECK(opened.expired());
    });
  }

  TEST_CASE("one submit per evaluation; the second time nothing is built, compiled or bound") {
    test::on_every_gpu([](const test::TestGpu& gpu) {
      // Nothing is measured at its first use, which would be submits as well.
      const bool is_software = gpu.adapter.info().type == gpu::AdapterType::cpu;
      auto backend = std::make_shared<WebgpuBackend>(gpu.open(), is_software);
      const Device device(backend);
      const std::vector<Array> w = block_weights(16, device);
      const Array x = values({1, 6, 16}, 0, device);
      std::vector<float> first;
      for (int i = 0; i < 4; ++i) {
        const EvalCounters plans = eval_counters();
        const gpu::Counters before = backend->device().counters();
        {
          const Array y = transformer_block(x, w);
          eval(y);
          const gpu::Counters after = backend->device().counters();
          CHECK(after.submits == before.submits + 1);
          CHECK(after.dispatches - before.dispatches == eval_counters().steps - plans.steps);
          if (backend->has_kernel("attention")) CHECK(after.dispatches <= before.dispatches + 8);
          if (i > 1) {
            CHECK(eval_counters().plans_built == plans.plans_built);
            CHECK(after.pipelines == before.pipelines);
            CHECK(after.bind_groups == before.bind_groups);
            CHECK(after.buffers == before.buffers);
          }
          if (i == 0) first = y.to_vector();
          if (i == 3) CHECK(y.to_vector() == first);
        }
      }
      const std::vector<float> cpu = transformer_block(values({1, 6, 16}), block_weights(16, {})).to_vector();
      for (size_t i = 0; i < cpu.size(); ++i) CHECK(first[i] == doctest::Approx(cpu[i]).epsilon(1e-3));
    });
  }
}
