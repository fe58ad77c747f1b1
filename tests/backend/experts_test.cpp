// Products with the matrices of a stack that ids name, on the CPU and on every GPU.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "array/host_tensor.h"
#include "array/node.h"
#include "backend/webgpu/experts.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "support/quant_data.h"
#include "support/relative_error.h"
#include "weft/create.h"

using namespace weft;

namespace {

/// A stack of matrices, rows of x and who chooses what; and the products, in double.
struct Problem {
  quant::Type type;
  int64_t experts, n, k, m, share;
  std::vector<float> x, w;
  std::vector<int32_t> ids;
  HostTensor blocks;  // (experts * n, bytes)

  Problem(quant::Type of, int64_t experts_, int64_t n_, int64_t k_, int64_t m_, int64_t share_)
      : type(of), experts(experts_), n(n_), k(k_), m(m_), share(share_) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    x.resize(static_cast<size_t>(m * k));
    for (float& value : x) value = normal(random);
    // Not all are chosen, the first most of all.
    for (int64_t i = 0; i < m * share; ++i)
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(experts) * (i % 3 != 0)));
    blocks = test::random_blocks(type, experts * n, k, 3);
    w.resize(static_cast<size_t>(experts * n * k));
    quant::dequantize(type, blocks.bytes.data(), w.data(), w.size());
  }

  bool has_floats() const { return quant::coding(type).bits == 0; }
  std::string name() const { return std::string(quant::traits(type).name); }
  Attrs attrs(int64_t bits) const {
    return {{"type", has_floats() ? std::string() : name()},
            {"n", n},
            {"k", k},
            {"experts", experts},
            {"bits", bits}};
  }

  Array stack_on(const Device& device) const {
    if (has_floats()) {
      const DType dtype = type == quant::Type::f16    ? DType::f16
                          : type == quant::Type::bf16 ? DType::bf16
                                                      : DType::f32;
      return as(Array::from_vector(w, {experts, n, k}, device), dtype);
    }
    HostTensor padded = blocks;
    const auto row_bytes = static_cast<size_t>(blocks.shape[1]), rows = static_cast<size_t>(n),
               whole = static_cast<size_t>(quant::whole_panels(n));
    padded.shape[0] = experts * quant::whole_panels(n);
    padded.bytes.assign(static_cast<size_t>(padded.shape[0]) * row_bytes, std::byte{0});
    for (size_t e = 0; e < static_cast<size_t>(experts); ++e)
      std::copy_n(blocks.bytes.begin() + static_cast<ptrdiff_t>(e * rows * row_bytes), rows * row_bytes,
                  padded.bytes.begin() + static_cast<ptrdiff_t>(e * whole * row_bytes));
    return call("repack", {Array::from_host(padded, device)}, {{"type", name()}, {"k", k}});
  }
  std::vector<Array> inputs_on(const Device& device, int64_t bits) const {
    const Array rows = Array::from_vector(x, {m, k}, device);
    return {bits > 0 ? call("activation_codes", {rows}, {{"bits", bits}}) : rows, stack_on(device),
            Array::from_span(std::span(ids), {std::ssize(ids)}, device)};
  }

  std::vector<float> want() const {
    std::vector<float> y;
    for (size_t i = 0; i < ids.size(); ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += double{x[static_cast<size_t>(static_cast<int64_t>(i) / share * k + p)]} *
                 w[static_cast<size_t>((ids[i] * n + j) * k + p)];
        y.push_back(static_cast<float>(sum));
      }
    return y;
  }

  void check(const std::vector<float>& got, int64_t bits) const {
    CAPTURE(name());
    CAPTURE(n);
    CAPTURE(m);
    CAPTURE(bits);
    CHECK(test::relative_error(got, want()) < (bits == 8 ? 0.02 : bits == 16 ? 1e-4 : 1e-5));
  }
};

Operand operand(const Array& array) {
  const Value& value = value_of(array);
  return {value.storage, value.dtype, value.layout};
}

/// In tiles, which software adapters do not choose.
void check_tiles(WebgpuBackend& backend, const Device& device, const Problem& problem, int64_t bits) {
  const std::vector<Array> inputs = problem.inputs_on(device, bits);
  eval(inputs);
  const Array out =
      Array::from_vector(std::vector<float>(problem.ids.size() * static_cast<size_t>(problem.n)),
                         {std::ssize(problem.ids), problem.n}, device);
  const Attrs attrs = problem.attrs(bits);
  const Step step{.kernel = "expert_matmul",
                  .inputs = {operand(inputs[0]), operand(inputs[1]), operand(inputs[2])},
                  .outputs = {operand(out)},
                  .attrs = &attrs};
  std::vector<StoragePtr> storages;
  std::vector<const gpu::Buffer*> buffers;
  for (const auto* operands : {&step.inputs, &step.outputs})
    for (const Operand& o : *operands) {
      storages.push_back(o.storage);
      buffers.push_back(&webgpu::buffer_of(o));
    }
  webgpu::Tape tape;
  webgpu::Context context(backend.device(), tape, buffers);
  context.software = false;
  webgpu::multiply_experts(context, step, {.tiles = true, .threads = 256});
  backend.run(tape, backend.with_scratch(tape, storages), {});
  problem.check(out.to_vector(), bits);
}

void check_on(const Device& device, const Problem& problem) {
  for (int64_t bits : {0, 8, 16}) {
    if (bits > 0 && problem.has_floats()) continue;
    problem.check(call("expert_matmul", problem.inputs_on(device, bits), problem.attrs(bits)).to_vector(),
                  bits);
  }
}

}  // namespace

TEST_SUITE("base: experts") {
  TEST_CASE("the CPU's products are those of each row alone, for every type") {
    using enum quant::Type;
    for (const quant::Type type : test::all_quant_types())
      check_on(Device(), Problem(type, 3, 24, 256, 5, 2));
    for (const quant::Type type : {f32, f16, bf16}) check_on(Device(), Problem(type, 4, 5, 7, 9, 3));
    for (const quant::Type type : {q4_k, q8_0, f16}) {
      check_on(Device(), Problem(type, 4, 48, 256, 1, 1));
      check_on(Device(), Problem(type, 2, 17, 256, 150, 2));  // more rows of one matrix than a task takes
    }
  }

  TEST_CASE("nothing, and what does not fit") {
    const Array none = zeros({0}, {DType::i32}), x = ones({2, 4}), w = ones({3, 5, 4});
    const Attrs attrs = {{"n", 5}, {"k", 4}, {"experts", 3}};
    CHECK(call("expert_matmul", {x, w, none}, attrs).shape() == Shape{0, 5});
    const auto error = [&](const Array& left, const Array& stack, const Array& ids) {
      return test::error_of([&] { eval(call("expert_matmul", {left, stack, ids}, attrs)); }).message;
    };
    const Array ids = zeros({2}, {DType::i32});
    CHECK(error(x, w, ids + 3) == "[expert_matmul] expert 3 is not one of 3");
    CHECK(error(x, w, ids - 1) == "[expert_matmul] expert -1 is not one of 3");
    CHECK(error(x, w, zeros({3}, {DType::i32})) ==
          "[expert_matmul] ids are i32 (3), expected i32 for each of 2 rows");
    CHECK(error(ones({2, 3}), w, ids) == "[expert_matmul] x is f32 (2,3), expected f32 (rows,4)");
    CHECK(error(x, ones({3, 4, 5}), ids) ==
          "[expert_matmul] the stack is f32 (3,4,5), expected a float (3,5,4)");
  }
}

TEST_SUITE("gpu experts") {
  TEST_CASE("every GPU gives what the definition says") {
    using enum quant::Type;
    bool first = true;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      const Device device(std::make_shared<WebgpuBackend>(gpu.open()));
      check_on(device, Problem(q4_k, 4, 40, 256, 3, 2));
      check_on(device, Problem(f16, 3, 20, 64, 70, 2));
      if (first)
        for (const quant::Type type : {q8_0, iq4_xs, f32, bf16})
          check_on(device, Problem(type, 3, 24, 256, 5, 2));
      if (first) check_on(device, Problem(f16, 4, 5, 7, 9, 3));
      first = false;
    });
  }

  TEST_CASE("tiles of rows that chose the same matrix") {
    using enum quant::Type;
    test::on_every_gpu([&](const test::TestGpu& gpu) {
      auto backend = std::make_shared<WebgpuBackend>(gpu.open(), /*software=*/false);
      const Device device(backend);
      check_on(device, Problem(q4_k, 4, 40, 256, 3, 2));
      check_tiles(*backend, device, Problem(q4_k, 3, 133, 256, 150, 2), 16);
      check_tiles(*backend, device, Problem(q4_0, 9, 24, 64, 5, 1), 0);  // more matrices than rows
      check_tiles(*backend, device, Problem(f16, 2, 70, 48, 70, 2), 0);
      check_tiles(*backend, device, Problem(f32, 2, 20, 16, 70, 1), 0);
    });
  }
}
