// Quantised weights on the CPU and on every GPU.
#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "array/host_tensor.h"
#include "array/node.h"
#include "backend/webgpu/qmatmul.h"
#include "backend/webgpu/webgpu_backend.h"
#include "ops/shorthand.h"
#include "support/gpus.h"
#include "support/quant_data.h"

using namespace weft;
using test::all_quant_types;

namespace {

std::string name_of(quant::Type type) {
  return std::string(quant::traits(type).name);
}

/// body(device) for the CPU and every GPU.
void on_every_device(const std::function<void(const Device&)>& body) {
  body(Device());
  test::on_every_gpu(
      [&](const test::TestGpu& gpu) { body(Device(std::make_shared<WebgpuBackend>(gpu.open()))); });
}

/// The same bits, but a GPU may give another NaN, and 0 for what is subnormal or made of a subnormal scale.
bool same_value(uint32_t got, uint32_t want, bool subnormals) {
  const auto value = std::bit_cast<float>(want);
  if (got == want || (std::isnan(value) && std::isnan(std::bit_cast<float>(got)))) return true;
  return subnormals && std::abs(value) < 0x1p-120f && (got & 0x7fffffff) == 0;
}

Operand operand(const Array& array) {
  const Value& value = value_of(array);
  return {value.storage, value.dtype, value.layout};
}

/// A product of random x (m, k) and weights, and what it must be: x w^T in double.
struct Product {
  quant::Type type;
  int64_t m, n, k;
  std::vector<float> x, w;

  Product(quant::Type of, int64_t rows, int64_t outputs, int64_t inputs)
      : type(of),
        m(rows),
        n(outputs),
        k(inputs),
        x(static_cast<size_t>(m * k)),
        w(static_cast<size_t>(n * k)) {
    // Codes of 16 bits that round without doubt: multiples of a part of a scale that is a power of two.
    std::mt19937 random(7);
    float scale = 1;
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % 32 == 0) scale = std::ldexp(1.0f, static_cast<int>(random() % 8) - 10);
      // In 1024ths, and never half way between two codes or two rests.
      auto parts = static_cast<int>(random() % 258049) - 129024;
      if (parts % 2 == 0) ++parts;
      x[i] = scale * (i % 32 == 5 ? -127.0f : static_cast<float>(parts) / 1024);
    }
    blocks = test::random_blocks(type, n, k, 3);
    quant::dequantize(type, blocks.bytes.data(), w.data(), w.size());
  }

  Attrs attrs() const { return {{"type", name_of(type)}, {"n", n}, {"k", k}}; }
  Array x_on(const Device& device) const { return Array::from_vector(x, {m, k}, device); }
  Array packed_on(const Device& device) const {
    return call("repack", {Array::from_host(blocks, device)}, {{"type", name_of(type)}, {"k", k}});
  }

  /// f32 may lose a few last bits of the sum of sizes.
  void check(const std::vector<float>& got, const std::vector<float>& left) const {
    REQUIRE(got.size() == static_cast<size_t>(m * n));
    size_t wrong = 0;
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term =
              double{left[static_cast<size_t>(i * k + p)]} * w[static_cast<size_t>(j * k + p)];
          sum += term;
          size += std::abs(term);
        }
        const double error = std::abs(got[static_cast<size_t>(i * n + j)] - sum) / size;
        worst = std::max(worst, error);
        wrong += !(error <= 1e-6);
      }
    CAPTURE(name_of(type));
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CAPTURE(worst);
    CHECK(wrong == 0);
  }

  /// x as its codes of so many bits say.
  std::vector<float> rounded(int64_t bits) const {
    std::vector<float> result(x.size());
    for (size_t first = 0; first < x.size(); first += 32) {
      float most = 0;
      for (size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(x[i]));
      const float scale = most / 127;
      for (size_t i = first; i < first + 32; ++i) {
        const float code = std::nearbyint(x[i] / scale);
        const float rest = std::nearbyint(256 * (x[i] / scale - code));
        result[i] = scale * (bits == 8 ? code : code + std::clamp(rest, -127.0f, 127.0f) / 256);
      }
    }
    return result;
  }

  Array by_codes(const Array& x_there, const Array& packed, int64_t bits) const {
    Attrs all = attrs();
    all.set("bits", bits);
    return call("qmatmul_codes", {call("activation_codes", {x_there}, {{"bits", bits}}), packed}, all);
  }

  void check_on(const Device& device) const {
    const Array left = x_on(device), packed = packed_on(device);
    check(call("qmatmul_packed", {left, packed}, attrs()).to_vector(), x);
    for (const int64_t bits : {8, 16}) check(by_codes(left, packed, bits).to_vector(), rounded(bits));
  }

  HostTensor blocks;
};

std::vector<quant::Type> block_types() {
  std::vector<quant::Type> types = all_quant_types();
  std::erase_if(types, [](quant::Type type) { return quant::traits(type).block_elements == 1; });
  return types;
}

/// Elements of a row of few blocks, which is no multiple of 256 where the type allows that.
int64_t some_elements(quant::Type type) {
  const int64_t block = quant::traits(type).block_elements;
  return block == 256 ? 512 : 320;
}

}  // namespace

TEST_SUITE("quantised") {
  TEST_CASE("dequantize gives gguf-py's values for every type, at any byte") {
    on_every_device([](const Device& device) {
      for (const quant::Type type : all_quant_types()) {
        CAPTURE(name_of(type));
        const HostTensor blocks = test::golden(type, "blocks");
        const auto want = test::golden_values<uint32_t>(type, "values");
        HostTensor odd{DType::u8, {static_cast<int64_t>(blocks.bytes.size()) + 3}, {}};
        odd.bytes.assign(3, std::byte{0});
        odd.bytes.insert(odd.bytes.end(), blocks.bytes.begin(), blocks.bytes.end());
        const Array w = slice_dim(Array::from_host(odd, device), 0, 3, odd.shape[0]);
        const Array got =
            call("dequantize", {w}, {{"type", name_of(type)}, {"shape", Ints{std::ssize(want)}}});
        const std::vector<float> values = got.to_vector();
        REQUIRE(values.size() == want.size());
        size_t wrong = 0;
        for (size_t i = 0; i < want.size(); ++i)
          wrong += !same_value(std::bit_cast<uint32_t>(values[i]), want[i], device != Device());
        CHECK(wrong == 0);
      }
    });
  }

  TEST_CASE("products with packed weights on every vector target") {
    const int64_t supported = hwy::SupportedTargets();
    for (int64_t targets = supported; targets != 0; targets &= targets - 1) {  // the best of them goes
      hwy::SetSupportedTargetsForTest(targets);
      hwy::GetChosenTarget().DeInit();
      CAPTURE(std::string(hwy::TargetName(targets & -targets)));
      for (const quant::Type type : block_types())
        for (const int64_t m : {1, 7}) Product(type, m, 35, some_elements(type)).check_on(Device());
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }

  TEST_CASE("products of every height") {
    for (const int64_t m : {1, 2, 3, 4, 5, 8, 9, 64, 65, 131})
      for (const quant::Type type : {quant::Type::q4_0, quant::Type::q6_k})
        Product(type, m, 16, 256).check_on(Device());
    Product(quant::Type::q8_0, 3, 1, 32).check_on(Device());
  }

  TEST_CASE("products of several tiles and panels") {
    for (const int64_t m : {1, 3}) {
      for (const quant::Type type : {quant::Type::q4_1, quant::Type::q8_0})
        Product(type, m, 83, 2144).check_on(Device());
      for (const quant::Type type : {quant::Type::q4_k, quant::Type::q6_k})
        Product(type, m, 290, 3328).check_on(Device());
    }
  }

  TEST_CASE("products with packed weights on every GPU") {
    using enum quant::Type;  // one or two scales for 32 elements, minima or offsets, a table
    test::on_every_gpu([](const test::TestGpu& gpu) {
      gpu::Features features = gpu.features;
      const auto check = [&](bool software, std::initializer_list<quant::Type> types) {
        const Device device(
            std::make_shared<WebgpuBackend>(gpu::Device::create(gpu.adapter, features, {}), software));
        for (const quant::Type type : types) Product(type, 2, 19, some_elements(type)).check_on(device);
      };
      check(false, {q2_k, q5_0, q6_k, iq2_xs});
      check(true, {q2_k, q4_k, q5_0, q6_k, iq2_xs});  // four rows for each lane of a subgroup
      features.subgroups = false;
      check(true, {q4_1});
    });
  }

  TEST_CASE("bias, activation and residual go with a product") {
    on_every_device([](const Device& device) {
      const Product product(quant::Type::q4_k, 3, 21, 256);
      const Array x = product.x_on(device), packed = product.packed_on(device);
      const Array bias = Array::from_vector(std::vector<float>(21, -1.5f), {21}, device);
      const Array residual = Array::from_vector(std::vector<float>(63, 0.25f), {1, 3, 21}, device);
      for (const int64_t bits : {8, 16, 32}) {
        const auto y = [&] {
          return bits < 32 ? product.by_codes(x, packed, bits)
                           : call("qmatmul_packed", {x, packed}, product.attrs());
        };
        const std::vector<float> plain = y().to_vector();  // by itself
        const std::vector<float> got =                     // whose product nobody holds
            (residual + call("relu", {reshape(y(), {1, 3, 21}) + bias}) * 2.0).to_vector();
        size_t wrong = 0;
        for (size_t i = 0; i < plain.size(); ++i)
          wrong += !(std::abs(got[i] - (0.25f + 2 * std::max(plain[i] - 1.5f, 0.0f))) <=
                     1e-5f * (1 + std::abs(got[i])));
        CHECK(wrong == 0);
      }
    });
  }

  TEST_CASE("every form of a product on a GPU") {
    using webgpu::QuantForm;
    bool first = true;
    test::on_every_gpu([&first](const test::TestGpu& gpu) {
      auto backend = std::make_shared<WebgpuBackend>(gpu.open(), /*software=*/false);
      const Device device(backend);
      const QuantForm tiles{.tiles = true, .threads = 256},
          rows{.threads = 64, .lanes = 4, .rows = 2, .ahead = 2, .beside = true},
          vectors{.threads = 32, .lanes = 2, .vectors = 2, .ahead = 4, .beside = true},
          alone{.threads = 64, .beside = true};
      const auto check = [&](quant::Type type, const std::string& kernel, const QuantForm& form,
                             int64_t m = 67) {
        const Product product(type, m, 133, 512);
        const bool bytes = kernel == "qmatmul_codes";
        const Array x = bytes ? call("activation_codes", {product.x_on(device)}) : product.x_on(device);
        const Array packed = product.packed_on(device);
        const Array out =
            Array::from_vector(std::vector<float>(static_cast<size_t>(m) * 133), {m, 133}, device);
        eval(std::vector{x, packed});
        Attrs attrs = product.attrs();
        if (bytes) attrs.set("bits", int64_t{16});
        const Step step{.kernel = kernel,
                        .inputs = {operand(x), operand(packed)},
                        .outputs = {operand(out)},
                        .attrs = &attrs};
        const std::vector<const gpu::Buffer*> buffers = {&webgpu::buffer_of(step.inputs[0]),
                                                         &webgpu::buffer_of(step.inputs[1]),
                                                         &webgpu::buffer_of(step.outputs[0])};
        webgpu::Tape tape;
        webgpu::Context context(backend->device(), tape, buffers);
        webgpu::multiply_packed(context, step, form);
        const std::vector<StoragePtr> storages = {step.inputs[0].storage, step.inputs[1].storage,
                                                  step.outputs[0].storage};
        backend->run(tape, backend->with_scratch(tape, storages), {});
        CAPTURE(form.tiles);
        CAPTURE(form.lanes);
        product.check(out.to_vector(), bytes ? product.rounded(16) : product.x);
      };
      check(quant::Type::q4_k, "qmatmul_packed", tiles);
      check(quant::Type::q4_k, "qmatmul_packed", rows);
      check(quant::Type::iq4_xs, "qmatmul_codes", tiles);
      check(quant::Type::iq4_xs, "qmatmul_codes", rows);
      check(quant::Type::q4_k, "qmatmul_codes", rows, 1);  // x is brought to the workgroup's memory
      if (!std::exchange(first, false)) return;            // a kernel takes llvmpipe seconds
      check(quant::Type::q6_k, "qmatmul_codes", vectors);
      check(quant::Type::q4_0, "qmatmul_codes", alone);
    });
  }

  TEST_CASE("products of halves, whose weights are unpacked inside or before") {
    on_every_device([](const Device& device) {
      // Types with a table, with two scales and with minima; blocks that are not whole tiles; few and many
      // rows.
      const Product products[] = {
          Product(quant::Type::q4_k, 16, 133, 512),  Product(quant::Type::q4_0, 33, 70, 96),
          Product(quant::Type::iq4_nl, 40, 64, 160), Product(quant::Type::q6_k, 17, 40, 2048),
          Product(quant::Type::q8_0, 130, 65, 64),   Product(quant::Type::q4_1, 3, 19, 32)};
      for (Product product : products) {
        const auto to_halves = [](std::vector<float>& values) {
          values = as(Array::from_vector(values, {std::ssize(values)}), DType::f16).to_vector();
        };
        const Array x = as(product.x_on(device), DType::f16), packed = product.packed_on(device);
        const auto y = [&] { return call("qmatmul_halves", {x, packed}, product.attrs()); };
        const std::vector<float> plain = y().to_vector(),
                                 further = (y() * 2.0 + 1.0).to_vector();  // where it is stored
        to_halves(product.x), to_halves(product.w);
        product.check(plain, product.x);
        for (size_t i = 0; i < plain.size(); ++i)
          CHECK(further[i] == doctest::Approx(plain[i] * 2 + 1).epsilon(1e-5));
      }
    });
  }

  TEST_CASE("weights keep their values when packed") {
    on_every_device([](const Device& device) {
      for (const quant::Type type : block_types()) {
        const Product product(type, 1, 19, some_elements(type));
        CAPTURE(name_of(type));
        const std::vector<float> got =
            call("dequantize_packed", {product.packed_on(device)}, product.attrs()).to_vector();
        REQUIRE(got.size() == product.w.size());
        size_t wrong = 0;  // q6_k is rounded once or, without a fused multiply-add, twice
        for (size_t i = 0; i < got.size(); ++i)
          wrong += !(std::abs(got[i] - product.w[i]) <= std::abs(product.w[i]) * 0x1p-22f);
        CHECK(wrong == 0);
      }
      const Product product(quant::Type::q4_k, 1, 19, 512);
      Attrs halves = product.attrs();
      halves.set("dtype", "f16");
      const Array packed = product.packed_on(device);
      CHECK(call("dequantize_packed", {packed}, halves).to_vector() ==
            as(Array::from_vector(product.w, {19, 512}), DType::f16).to_vector());
    });
  }

  TEST_CASE("codes of 16 bits are near, and the largest is 127") {
    on_every_device([](const Device& device) {
      // One code at a time: an identity of q8_0 gives x back as its codes say.
      HostTensor one{DType::u8, {32, 34}, std::vector<std::byte>(size_t{32} * 34)};
      for (size_t i = 0; i < 32; ++i) {
        const uint16_t half = 0x3c00;  // 1.0
        std::memcpy(one.bytes.data() + i * 34, &half, 2);
        one.bytes[i * 34 + 2 + i] = std::byte{1};
      }
      std::mt19937 random(1);
      std::uniform_real_distribution<float> uniform(-3, 3);
      std::vector<float> x(size_t{32} * 50);
      for (float& v : x) v = uniform(random);
      std::fill_n(x.begin() + 32, 32, 0.0f);
      const Array packed = call("repack", {Array::from_host(one, device)}, {{"type", "q8_0"}, {"k", 32}});
      const Array bytes = call("activation_codes", {Array::from_vector(x, {50, 32}, device)});
      const std::vector<float> got =
          call("qmatmul_codes", {bytes, packed}, {{"type", "q8_0"}, {"n", 32}, {"k", 32}}).to_vector();
      size_t wrong = 0;
      for (size_t first = 0; first < x.size(); first += 32) {
        float most = 0;
        for (size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(x[i]));
        for (size_t i = first; i < first + 32; ++i) {
          // A rest of half a code, 128, is stored as 127.
          const float step = most / (127 * 256), code = step > 0 ? got[i] / step : 0;
          wrong += !(std::abs(got[i] - x[i]) <= 1.01f * step) || std::abs(code - std::round(code)) > 0.02f;
        }
      }
      CHECK(wrong == 0);
    });
  }
}
