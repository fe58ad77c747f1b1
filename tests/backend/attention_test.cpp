// The kernels `attention` and `attention_backward` of every backend against their composed forms on the CPU.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "array/host_tensor.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "support/kernel_call.h"

using namespace weft;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Mask { none, truths, biases };
enum class Order { heads_first, tokens_first };  // (b, h, t, d), or a view of (b, t, h, d)

struct Problem {
  int64_t batch, heads, key_heads, queries, keys, dim, value_dim;
  Attrs attrs = {};
  Mask mask = Mask::none;
  DType dtype = DType::f32;
  Order order = Order::heads_first;
};

const Attrs kCausal = {{"causal", true}};

/// Within what every device is tested on.
std::vector<Problem> small_problems() {
  return {
      {2, 2, 2, 5, 7, 4, 4},
      {1, 4, 2, 70, 130, 40, 24, kCausal},
      {1, 2, 1, 75, 33, 32, 64, kCausal},
      {1, 1, 1, 90, 140, 16, 16, {{"window", 20}}},
      {1, 2, 2, 33, 65, 64, 64, {{"window", 9}, {"causal", true}, {"softcap", 1.5}}},
      {1, 1, 1, 20, 20, 8, 8, {{"window", 0}}},
      {2, 4, 2, 37, 41, 8, 12, {}, Mask::truths},
      {2, 2, 2, 37, 41, 8, 12, kCausal, Mask::biases},
      {1, 8, 2, 1, 1100, 64, 64},                                   // decoding
      {2, 4, 4, 2, 300, 24, 40, {{"softcap", 2.0}}, Mask::biases},  // decoding with all of it
      {1, 2, 2, 40, 70, 64, 64, kCausal, Mask::none, DType::f16},
      {1, 2, 2, 19, 23, 33, 31, {}, Mask::truths, DType::f16},  // rows end within words
      {1, 3, 3, 1, 90, 33, 31, {}, Mask::none, DType::bf16},
      {1, 2, 2, 40, 70, 64, 64, {}, Mask::biases, DType::bf16},
      {2, 4, 2, 21, 35, 16, 16, kCausal, Mask::none, DType::f32, Order::tokens_first},
      {2, 4, 2, 1, 35, 16, 16, {}, Mask::none, DType::f16, Order::tokens_first},
      {1, 1, 1, 17, 40, 256, 256},
  };
}

/// Numbers from -1 to 1.
std::vector<float> numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(random()) * 0x1p-31f - 1;
  return values;
}

class Run {
 public:
  Run(const Problem& p, const Device& device) : problem_(p), device_(device), attrs_(p.attrs) {
    attrs_.set("scale", 1.7 / std::sqrt(static_cast<double>(p.dim)));
    for (const char* name : {"softcap", "window"})
      if (!attrs_.has(name)) attrs_.set(name, {});
    if (!attrs_.has("causal")) attrs_.set("causal", false);
    q_ = tokens(p.heads, p.queries, p.dim, 1), k_ = tokens(p.key_heads, p.keys, p.dim, 2);
    v_ = tokens(p.key_heads, p.keys, p.value_dim, 3), d_out_ = tokens(p.heads, p.queries, p.value_dim, 4);
    if (p.mask != Mask::none) mask_ = mask();
  }

  /// out, the logarithms of the sums of exponentials and the gradients of q, k and v: by the kernels, or
  /// composed.
  std::vector<Array> results(bool kernels) const {
    const auto call_of = [&](std::string_view name, const std::vector<Array>& inputs) {
      const OpCall call{find_op(name), inputs, attrs_, device_};
      if (!kernels) return call.op.compose(call);
      const test::KernelCall kernel(call);
      device_.backend().run(std::span(&kernel.step, 1));
      return kernel.results;
    };
    std::vector<Array> all = call_of("attention", {q_, k_, v_, mask_});
    const Array delta = sum(as(all[0], DType::f32) * as(d_out_, DType::f32), {-1});
    const Array stats = all[1], top = slice_dim(stats, -1, 0, 1), share = slice_dim(stats, -1, 1, 2);
    // Where a mask adds the lowest number to all scores, GPUs take another one for it.
    all[1] = call("maximum", {top - log(share), scalar_like(top, -1e37)});
    for (const Array& gradient : call_of("attention_backward", {q_, k_, v_, d_out_, stats, delta, mask_}))
      all.push_back(gradient);
    return all;
  }

  /// Compiles the kernels and runs none.
  void prepare() const {
    const Array rows = sum(as(q_, DType::f32), {-1}), column = unsqueeze(rows, -1),
                stats = cat({column, column}, -1);
    const std::vector<Array> forward = {q_, k_, v_, mask_},
                             backward = {q_, k_, v_, d_out_, stats, rows, mask_};
    const test::KernelCall calls[] = {
        test::KernelCall({find_op("attention"), forward, attrs_, device_}),
        test::KernelCall({find_op("attention_backward"), backward, attrs_, device_})};
    for (const test::KernelCall& call : calls)
      device_.backend().prepare(std::span(&call.step, 1), call.storages(), false);
  }

 private:
  Array on_device(const std::vector<float>& values, const Shape& shape, DType dtype) const {
    return Array::from_host(as(Array::from_vector(values, shape), dtype).to_host(), device_);
  }

  Array tokens(int64_t heads, int64_t count, int64_t dim, unsigned seed) const {
    if (problem_.order == Order::heads_first)
      return on_device(numbers(problem_.batch * heads * count * dim, seed),
                       {problem_.batch, heads, count, dim}, problem_.dtype);
    // One part of three, as in a packed qkv.
    const Array packed = on_device(numbers(problem_.batch * count * 3 * heads * dim, seed),
                                   {problem_.batch, count, 3, heads, dim}, problem_.dtype);
    return permute(squeeze(slice_dim(packed, 2, 1, 2), 2), {0, 2, 1, 3});
  }

  /// Hides every third key, and all of them from the second query. Floats make those that the third and the
  /// fourth query see very unlikely, all alike.
  Array mask() const {
    const bool truths = problem_.mask == Mask::truths;
    const Shape shape = truths ? Shape{problem_.batch, 1, problem_.queries, problem_.keys}
                               : Shape{problem_.heads, problem_.queries, problem_.keys};
    std::vector<float> values = numbers(element_count(shape), 5);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const int64_t query = at / problem_.keys % problem_.queries;
      const bool hidden = (at % problem_.keys) % 3 == 1 || query == 1;
      if (truths)
        values[i] = hidden ? 0 : 1;
      else if (hidden)
        values[i] = static_cast<float>(-kInfinity);
      else if (query == 2 || query == 3)
        values[i] = query == 2 ? -1e9f : std::numeric_limits<float>::lowest();
    }
    return on_device(values, shape, truths ? DType::boolean : problem_.dtype);
  }

  const Problem problem_;
  const Device device_;
  Attrs attrs_;
  Array q_, k_, v_, d_out_, mask_;
};

void check_close(const Array& got, const Array& want, double tolerance) {
  REQUIRE(got.shape() == want.shape());
  REQUIRE(got.dtype() == want.dtype());
  const std::vector<float> a = as(got, DType::f32).to_vector(), b = as(want, DType::f32).to_vector();
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const bool same = a[i] == b[i] || std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i]));
    if (!same && wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  CAPTURE(first);
  CAPTURE(a[first]);
  CAPTURE(b[first]);
  FAIL_CHECK(wrong, " of ", b.size(), " elements differ");
}

void check_problem(const Problem& problem, const Device& device) {
  // Gradients of halves see `out` rounded once more.
  const double tolerance = problem.dtype == DType::f32 ? 2e-5 : problem.dtype == DType::f16 ? 3e-3 : 2e-2;
  const std::vector<Array> got = Run(problem, device).results(true),
                           want = Run(problem, Device()).results(false);
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    check_close(got[i], want[i], tolerance);
  }
}

}  // namespace

TEST_SUITE("base: attention kernels") {
  TEST_CASE("the CPU's: within blocks, past blocks, masked, shared heads, halves, strided, decoding") {
    std::vector<Problem> problems = small_problems();
    problems.push_back({1, 2, 1, 150, 300, 48, 56, kCausal});
    problems.push_back({1, 1, 1, 300, 600, 16, 16, {{"window", 100}}, Mask::biases});
    for (size_t i = 0; i < problems.size(); ++i) {
      CAPTURE(i);
      check_problem(problems[i], Device());
    }
  }
}

// Software adapters take up to a second for each of these kernels when they meet it first. So every library
// has to accept all of them, but only two run some; `--no-skip` runs everything everywhere.
TEST_SUITE("gpu attention kernels") {
  TEST_CASE("every library accepts the kernels") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      const std::vector<Problem> problems = small_problems();
      for (size_t i : {7, 8, 11, 13, 16}) CHECK_NOTHROW(Run(problems[i], device).prepare());
    });
  }

  TEST_CASE("tiles and splits, forward and backward") {
    const Attrs all = {{"window", 30}, {"causal", true}, {"softcap", 1.5}};
    const Problem floats{1, 4, 2, 40, 70, 40, 24, all, Mask::biases},
        halves{1, 4, 2, 3, 150, 33, 31, {}, Mask::truths, DType::f16, Order::tokens_first};
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name != "Dawn 2026" && gpu.library.name != "wgpu-native 29") return;
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      check_problem(gpu.library.name == "Dawn 2026" ? floats : halves, device);
    });
  }

  TEST_CASE("every problem on every GPU" * doctest::skip()) {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      const std::vector<Problem> problems = small_problems();
      for (size_t i = 0; i < problems.size(); ++i) {
        CAPTURE(i);
        check_problem(problems[i], device);
      }
    });
  }
}
