// Quantised weights on the CPU and on every GPU.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "array/host_tensor.h"
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
}
