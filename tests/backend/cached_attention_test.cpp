// The kernel `cached_attention` of every backend against its composed form on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "array/host_tensor.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "support/kernel_call.h"
#include "weft/grad.h"

using namespace weft;

namespace {

struct Problem {
  int64_t heads, key_heads, dim, value_dim;
  std::vector<std::pair<int64_t, int64_t>> sequences;  // each: tokens before, and new ones
  Attrs attrs = {};
  std::string cache = "f32";
  bool sinks = false, slopes = false;
  size_t pitch = 0;  // 0: sequences in no order, 3 keys of fill behind each
};

std::vector<Problem> small_problems() {
  const Attrs window = {{"window", 7}}, open = {{"causal", false}};
  return {
      {2, 2, 16, 16, {{0, 5}}},
      {6, 2, 24, 40, {{0, 70}}},
      {9, 3, 64, 64, {{300, 1}}, {}, "f16"},  // decoding
      {9, 3, 64, 64, {{100, 1}, {7, 1}, {600, 1}}, {}, "f16"},
      {4, 1, 256, 256, {{20, 30}}, window},
      {4, 4, 32, 48, {{0, 40}, {33, 9}}, {{"softcap", 1.5}, {"window", 20}}, "f16"},
      {8, 2, 64, 64, {{0, 20}, {70, 1}}, window, "f32", true},
      {6, 3, 33, 31, {{3, 50}}, {}, "f32", false, true},
      {5, 5, 20, 20, {{0, 90}, {0, 11}}, open, "f16", true, true},
      {4, 2, 80, 64, {{1000, 3}}, {{"softcap", 3.0}}, "f16", true},
      {2, 1, 576, 512, {{40, 20}}},
      {4, 2, 64, 32, {{40, 20}}, {}, "q8_0"},
      {4, 2, 32, 64, {{400, 1}, {3, 2}}, {}, "q4_0"},
      {8, 1, 128, 128, {{700, 1}}, {{"window", 100}}, "f16"},
      {8, 2, 96, 96, {{130, 1}, {40, 2}}, {{"softcap", 2.0}}, "f32", true, true},
      {4, 4, 192, 128, {{260, 1}}, {}, "f16"},
      {10, 2, 80, 80, {{500, 1}, {0, 1}}, {}, "f16", false, true},
      {12, 1, 64, 64, {{90, 1}, {1, 1}}, window, "f16", true},  // more heads than a workgroup takes
      {3, 1, 40, 24, {{50, 1}}},
      {14, 2, 64, 64, {{1030, 2}}, {}, "f16"},           // queries that are no whole tiles
      {2, 2, 20, 12, {{80, 1}}, {}, "f16", true, true},  // no whole loads
      {8, 8, 16, 16, {{2500, 64}}, {}, "f16"},           // more keys than a workgroup looks at in one go
      {2, 1, 16, 16, {{9000, 1}}, {}, "f16"},            // as many keys as take more invocations
      {4, 2, 16, 16, {{100, 1}, {3, 1}, {0, 1}, {190, 1}}, {}, "f16", false, false, 192},
      {4, 2, 16, 16, {{100, 2}, {0, 1}, {1300, 1}}, window, "f16", true, true, 1536},
      {4, 2, 16, 16, {{10, 2}, {0, 3}}, {{"causal", false}, {"window", 4}}, "f32", false, false, 64},
  };
}

/// The inputs of a call, on a device.
class Run {
 public:
  Run(const Problem& p, const Device& device) : device_(device), attrs_(p.attrs) {
    attrs_.set("scale", 1.7 / std::sqrt(static_cast<double>(p.dim)));
    const std::vector<std::pair<std::string, AttrValue>> rest = {{"softcap", 0.0},
                                                                 {"window", int64_t{0}},
                                                                 {"pitch", static_cast<int64_t>(p.pitch)},
                                                                 {"causal", true},
                                                                 {"type", std::string()}};
    for (const auto& [name, value] : rest)
      if (!attrs_.has(name)) attrs_.set(name, value);
    const bool blocks = p.cache.starts_with("q");
    if (blocks) attrs_.set("type", p.cache);

    // Rows of the cache in no order; fill at the end, and between sequences.
    std::vector<int32_t> key_positions, key_sequences, positions, sequences;
    int32_t index = p.pitch > 0 ? 0 : 4;
    for (const auto& [before, count] : p.sequences) {
      for (int64_t i = 0; i < before + count; ++i) {
        key_positions.push_back(static_cast<int32_t>(i));
        key_sequences.push_back(index);
        if (i < before) continue;
        positions.push_back(static_cast<int32_t>(i));
        sequences.push_back(index);
      }
      const size_t filled = p.pitch > 0 ? static_cast<size_t>(index + 1) * p.pitch : key_positions.size() + 3;
      key_positions.resize(filled, 0);
      key_sequences.resize(filled, -1);
      index += p.pitch > 0 ? 1 : -1;
    }
    const auto keys = static_cast<int64_t>(key_positions.size()), rows = keys + 5,
               n = static_cast<int64_t>(positions.size());
    std::vector<int32_t> key_rows;
    for (int64_t i = 0; i < rows; ++i) key_rows.push_back(static_cast<int32_t>(i));
    std::shuffle(key_rows.begin(), key_rows.end(), std::mt19937(7));
    key_rows.resize(static_cast<size_t>(keys));

    const DType dtype = blocks ? DType::f32 : dtype_from_name(p.cache);
    const auto cache = [&](int64_t columns, unsigned seed) {
      const Array x = as(numbers({rows, columns}, seed), dtype);
      return on_device(blocks ? call("quantize", {x}, {{"type", p.cache}}) : x);
    };
    // Queries as they come from a product: heads are not the outer dim of what they are a view of.
    inputs_ = {transpose(on_device(numbers({p.heads, n, p.dim}, 1)), 0, 1),
               cache(p.key_heads * p.dim, 2),
               cache(p.key_heads * p.value_dim, 3),
               integers(key_rows),
               integers(key_positions),
               integers(key_sequences),
               integers(positions),
               integers(sequences),
               p.sinks ? on_device(numbers({p.heads}, 4)) : Array(),
               p.slopes ? on_device(numbers({p.heads}, 5)) : Array()};
  }

  Array by_kernel() const {
    const test::KernelCall kernel({find_op("cached_attention"), inputs_, attrs_, device_});
    // Twice: what a run counts with, it must leave as it was.
    Backend& backend = device_.backend();
    std::vector<StoragePtr> storages = kernel.storages();
    const auto prepared = backend.prepare(std::span(&kernel.step, 1), storages, false);
    storages = backend.with_scratch(*prepared, std::move(storages));
    backend.run(*prepared, storages, {});
    const StoragePtr& out = kernel.step.outputs[0].storage;
    backend.write(out, 0, std::vector<std::byte>(out->size(), std::byte{0x55}));
    backend.run(*prepared, storages, {});
    return kernel.results[0];
  }
  /// Which way is taken, when half of the threads is the only other one.
  void tune(WebgpuBackend& backend) const {
    const test::KernelCall kernel({find_op("cached_attention"), inputs_, attrs_, device_});
    const std::vector<StoragePtr> storages = kernel.storages();
    backend.prepare(std::span(&kernel.step, 1), storages, false);
    std::vector<webgpu::Asked> asked = backend.asked();
    REQUIRE(asked.size() == 1);
    webgpu::Question& question = asked[0].question;
    question.possible = [usual = question.usual](const webgpu::Way& way) {
      return way[0] <= usual[0] && way[0] >= usual[0] / 2 && way[1] == usual[1] && way[2] == usual[2];
    };
    std::vector<const gpu::Buffer*> buffers;
    for (const StoragePtr& storage : storages)
      buffers.push_back(&dynamic_cast<const WebgpuStorage&>(*storage).buffer());
    webgpu::tune(backend.device(), backend.tuning(), asked, std::span(&kernel.step, 1), buffers);
    CHECK(backend.tuning().knows(question.key));
    CHECK(question.possible(backend.tuning().answer(question)));
  }
  Array composed() const {
    const OpCall call{find_op("cached_attention"), inputs_, attrs_, device_};
    return call.op.compose(call)[0];
  }

  /// From -1 to 1.
  static Array numbers(const Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& v : values) v = static_cast<float>(random()) * 0x1p-31f - 1;
    return Array::from_vector(values, shape);
  }

 private:
  Array on_device(const Array& x) const { return Array::from_host(x.to_host(), device_); }
  Array integers(const std::vector<int32_t>& values) const {
    return Array::from_span(std::span(values), {std::ssize(values)}, device_);
  }

  Device device_;
  Attrs attrs_;
  std::vector<Array> inputs_;
};

void check_close(const Array& got, const Array& want) {
  REQUIRE(got.shape() == want.shape());
  const std::vector<float> a = got.to_vector(), b = want.to_vector();
  size_t wrong = 0;
  for (size_t i = 0; i < b.size(); ++i) wrong += !(std::abs(a[i] - b[i]) <= 2e-5f * (1 + std::abs(b[i])));
  CHECK(wrong == 0);
}

/// All of a GPU, less some of its features. `software`: with the kernels for adapters that are none.
void check_on(const test::TestGpu& gpu, const std::vector<size_t>& which, const std::string& without = "",
              bool software = false) {
  gpu::Features features = gpu.features;
  if (without.find("subgroups") != without.npos) features.subgroups = false;
  if (without.find("last_workgroup") != without.npos) features.last_workgroup = false;
  const Device device(
      std::make_shared<WebgpuBackend>(gpu::Device::create(gpu.adapter, features, {}), software));
  const std::vector<Problem> problems = small_problems();
  CAPTURE(without);
  for (size_t i : which) {
    CAPTURE(i);
    check_close(Run(problems[i], device).by_kernel(), Run(problems[i], Device()).composed());
  }
}

}  // namespace

TEST_SUITE("base: cached attention") {
  TEST_CASE("the CPU's kernel computes what the composed form does") {
    const std::vector<Problem> problems = small_problems();
    for (size_t i = 0; i < problems.size(); ++i) {
      CAPTURE(i);
      const Run run(problems[i], Device());
      check_close(run.by_kernel(), run.composed());
    }
  }

  TEST_CASE("a token that sees nothing is 0") {
    const std::vector<int32_t> one = {1}, none = {-1};
    const auto at = [](const std::vector<int32_t>& x) { return Array::from_span(std::span(x), {1}); };
    const Array y =
        call("cached_attention",
             {ones({1, 2, 4}), ones({3, 4}), ones({3, 4}), at(one), at(one), at(none), at(one), at(one)},
             {{"scale", 1.0}});
    CHECK(y.to_vector() == std::vector<float>(8, 0.0f));
  }

  TEST_CASE("what does not fit is refused") {
    const Array q = ones({1, 2, 4}), rows = ones({3, 4}), i = zeros({1}, {DType::i32});
    const auto error = [&](const Array& keys, const Array& at, const Attrs& attrs) {
      return test::error_of([&] { eval(call("cached_attention", {q, keys, rows, at, i, i, i, i}, attrs)); })
          .message;
    };
    const Attrs plain = {{"scale", 1.0}};
    const Array y = call("cached_attention", {q, rows, rows, i, i, i, i, i}, plain);
    CHECK(test::error_of([&] { vjp({y}, {y}, {q}); }).message == "[grad] cached_attention has no gradient");
    CHECK(error(ones({3, 6}), i, plain) ==
          "[cached_attention] q (1,2,4), keys (3,6) and values (3,4) do not go together");
    CHECK(error(rows, zeros({2}, {DType::i32}), plain) ==
          "[cached_attention] positions of keys are i32 (1), expected i32 (2)");
    CHECK(error(rows, zeros({0}, {DType::i32}), plain) == "[cached_attention] there are no keys");
    CHECK(error(rows, i, {{"scale", 1.0}, {"pitch", 2}}) ==
          "[cached_attention] 1 keys are not whole sequences of 2");
    CHECK(error(rows, i + 3, plain) == "[cached_attention] row 3 is not one of 3");
    CHECK(error(zeros({3, 34}, {DType::u8}), i, {{"scale", 1.0}, {"type", std::string("q8_0")}}) ==
          "[cached_attention] rows of the cache are f32 (3,4), expected (rows,columns) in blocks, u8");
  }
}

// Software adapters take up to a second for each of these kernels when they meet it first: two libraries
// run some, `--no-skip` runs everything everywhere.
TEST_SUITE("gpu cached attention") {
  TEST_CASE("splits and tiles, sinks and slopes, wide heads, blocks") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name == "Dawn 2026") check_on(gpu, {8, 12, 19}, "", true);
      if (gpu.library.name == "wgpu-native 29") check_on(gpu, {1});
      if (gpu.library.name == "wgpu-native 29") check_on(gpu, {10}, "", true);
    });
  }

  TEST_CASE("few tokens: in one dispatch or two, with and without subgroups") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name == "Dawn 2026") {
        check_on(gpu, {14, 20, 21, 22, 23});
        check_on(gpu, {18}, "subgroups");
      }
      if (gpu.library.name == "wgpu-native 29") {
        check_on(gpu, {17}, "last_workgroup");
        check_on(gpu, {2}, "last_workgroup,subgroups");
      }
    });
  }

  TEST_CASE("ways that are not usual, and one that was measured") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name != "Dawn 2026") return;
      const auto backend = std::make_shared<WebgpuBackend>(gpu.open(), /*software=*/false);
      const Device device(backend);
      const Run run(small_problems()[23], device), on_cpu(small_problems()[23], Device());
      run.tune(*backend);
      check_close(run.by_kernel(), on_cpu.composed());
      const webgpu::Question question = backend->asked()[0].question;
      for (const webgpu::Way& way : {webgpu::Way{128, 1, 1}, webgpu::Way{64, 2, 4}}) {
        CAPTURE(way[0]);
        REQUIRE(question.possible(way));
        backend->tuning().set(question.key, way);
        check_close(run.by_kernel(), on_cpu.composed());
      }
    });
  }

  TEST_CASE("as few threads as are possible for some heads") {
    // Without subgroups 32 invocations share a head, as on most GPUs.
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name != "Dawn 2026") return;
      gpu::Features features = gpu.features;
      features.subgroups = false;
      const auto backend = std::make_shared<WebgpuBackend>(gpu::Device::create(gpu.adapter, features, {}),
                                                           /*software=*/false);
      const Problem problem = {4, 1, 16, 16, {{40, 1}, {3, 1}}, {}, "f16", false, false, 64};
      const Run run(problem, Device(backend)), on_cpu(problem, Device());
      check_close(run.by_kernel(), on_cpu.composed());
      const webgpu::Question question = backend->asked()[0].question;
      for (const int64_t heads : {1, 2, 4}) {
        CAPTURE(heads);
        webgpu::Way way = {1, heads, 1};
        while (!question.possible(way) && way[0] < 4096) way[0] *= 2;
        backend->tuning().set(question.key, way);
        check_close(run.by_kernel(), on_cpu.composed());
      }
    });
  }

  TEST_CASE("lanes without barriers") {
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      if (gpu.library.name == "Dawn 2026") check_on(gpu, {3, 6, 23}, "", true);
      if (gpu.library.name == "wgpu-native 29") check_on(gpu, {5}, "", true);
    });
  }

  TEST_CASE("every problem on every GPU" * doctest::skip()) {
    std::vector<size_t> all(small_problems().size());
    std::iota(all.begin(), all.end(), size_t{0});
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      for (const char* without : {"", "subgroups", "last_workgroup", "last_workgroup,subgroups"})
        check_on(gpu, all, without);
      check_on(gpu, all, "", true);
    });
  }

  TEST_CASE("blocks are those that the CPU makes") {
    const Array x = Run::numbers({5, 192}, 8);
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      for (const char* type : {"q8_0", "q4_0"}) {
        const auto blocks_on = [&](const Device& on) {
          return call("quantize", {Array::from_host(x.to_host(), on)}, {{"type", std::string(type)}});
        };
        CHECK(as(blocks_on(device), DType::f32).to_vector() ==
              as(blocks_on(Device()), DType::f32).to_vector());
      }
    });
  }
}
