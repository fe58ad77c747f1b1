// Every form of the GPU's matrix product against a plain triple loop. All values are sixteenths whose sums
// are exact in f32, so results must be equal to the last bit.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "backend/primitives_support.h"
#include "backend/webgpu/matmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "support/gpus.h"
#include "support/skip.h"

using namespace weft;
using namespace weft::test::primitives;
using webgpu::MatmulDevice;

namespace {

struct Case {
  Shape a, b;  // (.., m, k), (.., k, n)
  DType a_type = DType::f32, b_type = DType::f32, out_type = DType::f32;
  Style a_style = Style::plain, b_style = Style::plain;
};

std::vector<Number> reference(const Sample& a, const Sample& b, DType out) {
  Shape shape = a.layout.shape;
  const size_t rank = shape.size();
  shape[rank - 1] = b.layout.shape[rank - 1];
  std::vector<Number> want;
  for (int64_t i = 0; i < element_count(shape); ++i) {
    Shape at_a = index_at(i, shape), at_b = at_a;
    Number sum = 0;
    for (int64_t k = 0; k < a.layout.shape[rank - 1]; ++k) {
      at_a[rank - 1] = at_b[rank - 2] = k;
      sum += a.at(at_a) * b.at(at_b);
    }
    want.push_back(stored(out, sum));
  }
  return want;
}

Operand upload(Backend& backend, const Sample& sample) {
  const StoragePtr storage = backend.alloc(sample.storage.size(), "factor");
  backend.write(storage, 0, sample.storage);
  return {storage, sample.dtype, sample.layout};
}

/// A case with its factors and what must come out.
struct Prepared {
  std::string what;
  Sample a, b, out;
  std::vector<Number> want;

  explicit Prepared(const Case& c)
      : what(fmt::format("{} {} style {} x {} {} style {} -> {}", name_of(c.a_type), to_string(c.a),
                         static_cast<int>(c.a_style), name_of(c.b_type), to_string(c.b),
                         static_cast<int>(c.b_style), name_of(c.out_type))),
        a(random(c.a_type, c.a, c.a_style, 1)),
        b(random(c.b_type, c.b, c.b_style, 2)),
        want(reference(a, b, c.out_type)) {
    Shape shape = c.a;
    shape.back() = c.b.back();
    out = make(c.out_type, shape);
    std::fill(out.storage.begin(), out.storage.end(), std::byte{0x5a});
  }
};

/// Runs the first case on every library, the others on the first one: compiling all of them for a software
/// adapter takes long. The device is taken for what `change` makes of it.
void check(const std::vector<Case>& cases, const std::function<void(MatmulDevice&)>& change) {
  std::vector<Prepared> prepared;
  for (const Case& c : cases) prepared.emplace_back(c);
  test::on_every_gpu([&](const test::TestGpu& gpu) {
    WebgpuBackend backend(gpu.open());
    MatmulDevice as_if(backend.device());
    change(as_if);
    for (const Prepared& p : prepared) {
      CAPTURE(p.what);
      const Operand a = upload(backend, p.a), b = upload(backend, p.b), out = upload(backend, p.out);
      const std::vector<const gpu::Buffer*> buffers = {&webgpu::buffer_of(a), &webgpu::buffer_of(b),
                                                       &webgpu::buffer_of(out)};
      webgpu::Tape tape;
      webgpu::Context context(backend.device(), tape, buffers);
      webgpu::matmul(context, {.kernel = "matmul_batched", .inputs = {a, b}, .outputs = {out}}, as_if);
      backend.run(tape, backend.with_scratch(tape, {a.storage, b.storage, out.storage}), {});
      Sample got = p.out;
      backend.read(out.storage, 0, got.storage);
      check_values(got, p.want);
    }
    prepared.resize(1, prepared[0]);
  });
}

constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, i32 = DType::i32, u32 = DType::u32;
constexpr Style kPlain = Style::plain, kTurned = Style::transposed, kSliced = Style::sliced,
                kFlipped = Style::flipped, kExpanded = Style::expanded;

const std::vector<Case> kTiled = {
    {{36, 20}, {20, 40}, f32, f32, f32, kPlain, kTurned},
    {{36, 20}, {20, 40}, f16, f16, f16, kTurned, kPlain},
    {{33, 35}, {35, 37}, bf16, f16, f16, kPlain, kTurned},
    {{2, 3, 12, 20}, {2, 3, 20, 14}, f16, f32, bf16, kExpanded, kFlipped},
    {{20, 30}, {30, 20}, i32, i32, i32, kSliced, kPlain},
    {{17, 16}, {16, 20}, u32, u32, u32, kTurned, kTurned},
};

}  // namespace

TEST_SUITE("gpu matmul") {
  TEST_CASE("blocks without barriers") {
    check(kTiled, [](MatmulDevice& device) { device.software = true; });
  }

  TEST_CASE("small tiles") {
    check(kTiled, [](MatmulDevice& device) {
      device.software = false;
      device.features.matrices.clear();
    });
  }

  TEST_CASE("large tiles") {
    check({{{130, 24}, {24, 140}, f32, f32, f32, kPlain, kTurned},
           {{132, 40}, {40, 138}, f16, f16, f16, kTurned, kPlain}},
          [](MatmulDevice& device) {
            device.software = false;
            device.features.matrices.clear();
            device.busy = 1;
          });
  }

  TEST_CASE("subgroup matrices") {
    bool any = false;
    test::on_every_gpu([&](const test::TestGpu& gpu) { any = any || !gpu.features.matrices.empty(); });
    if (!any) return test::skip("no GPU with subgroup matrices");
    for (int64_t busy : {1, 1000, 32'768})
      check({{{64, 64}, {64, 64}, f16, f16, f32, kPlain, kTurned},
             {{130, 70}, {70, 132}, f16, f16, f16, kPlain, kTurned},
             {{136, 72}, {72, 136}, f16, f16, f16, kTurned, kPlain},
             {{2, 65, 77}, {2, 77, 66}, f16, f16, bf16, kSliced, kFlipped}},
            [&](MatmulDevice& device) {
              device.software = false;
              device.busy = busy;
            });
  }

  TEST_CASE("vectors: a few rows or columns, along k and across") {
    const std::vector<Case> along = {{{2, 300}, {300, 70}, f32, f16, f32, kPlain, kTurned},
                                     {{3, 301}, {301, 33}, f16, f16, f16, kPlain, kTurned},
                                     {{8, 40}, {40, 12}, bf16, bf16, bf16, kPlain, kTurned},
                                     {{70, 64}, {64, 3}, f16, f16, f16, kPlain, kExpanded},
                                     {{70, 300}, {300, 1}},
                                     {{3, 9, 50}, {3, 50, 3}, f16, f16, f16}};
    const std::vector<Case> across = {{{2, 300}, {300, 72}},
                                      {{3, 40}, {40, 130}, f16, f16, f16},
                                      {{70, 64}, {64, 5}, f16, f32, f32, kTurned, kTurned},
                                      {{2, 50}, {50, 30}, i32, i32, i32, kFlipped, kSliced}};
    const auto hardware = [](MatmulDevice& device) { device.software = false; };
    check(along, hardware);
    check(across, hardware);
    check({along[0]}, [&](MatmulDevice& device) {
      hardware(device);
      device.features.subgroups = false;
    });
  }

  TEST_CASE("short sums") {
    check({{{9, 3}, {3, 11}, f16, f16, f16},
           {{2, 5, 15}, {2, 15, 7}, f32, f32, f32, kPlain, kTurned},
           {{4, 1}, {1, 4}, u32, u32, u32}},
          [](MatmulDevice&) {});
  }

  TEST_CASE("k in slices where there are few tiles") {
    check({{{12, 1100}, {1100, 12}, f32, f32, f32, kPlain, kTurned},
           {{12, 1100}, {1100, 13}, f16, f16, f16},
           {{2, 1030}, {1030, 9}, f16, f16, f16},
           {{2, 1600}, {1600, 12}},
           {{12, 1030}, {1030, 12}, i32, i32, i32}},
          [](MatmulDevice& device) { device.software = false; });
  }

  TEST_CASE("factors and outputs larger than a binding, in parts") {
    const std::vector<Case> cases = {
        {{12, 64}, {64, 200}, f32, f32, f32, kPlain, kTurned},  // rows of a weight
        {{12, 64}, {64, 200}, f16, f16, f16},                   // k of a weight
        {{1, 500}, {500, 33}, f16, f16, f16},                   // the same, and rows that end within a word
        {{300, 20}, {20, 20}},                                  // rows of a and of the output
        {{40, 20, 20}, {40, 20, 20}, f32, f32, f32, kFlipped, kPlain},
        {{20, 500}, {500, 9}, f16, f16, f16, kTurned, kTurned},
        {{12, 8}, {8, 300}},
    };
    check(cases, [](MatmulDevice& device) { device.limits.max_binding_size = 4096; });
    check({{{1, 64}, {64, 200}, f32, f32, f32, kPlain, kTurned},
           {{300, 64}, {64, 2}, f16, f16, f16},
           {{7, 300}, {300, 40}},
           {{40, 700}, {700, 3}, f32, f32, f32, kPlain, kTurned}},
          [](MatmulDevice& device) {
            device.limits.max_binding_size = 4096;
            device.software = false;
          });
  }
}
