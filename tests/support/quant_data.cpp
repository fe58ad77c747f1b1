#include "support/quant_data.h"

#include <cstring>
#include <random>
#include <string>

#include "array/half.h"
#include "io/safetensors.h"

namespace weft::test {
namespace {

using quant::Type;

/// Where the f16 scales of a block are.
std::vector<size_t> halves_of(Type type) {
  using enum Type;
  switch (type) {
    case q4_1:
    case q5_1:
    case q4_k:
    case q5_k:
      return {0, 2};
    case q2_k:
      return {80, 82};
    case q3_k:
      return {108};
    case q6_k:
      return {208};
    case tq1_0:
      return {52};
    case tq2_0:
      return {64};
    case f32:
    case bf16:
    case q8_k:
    case iq1_m:
    case mxfp4:
    case nvfp4:
      return {};
    default:
      return {0};
  }
}

void put_scales(Type type, std::mt19937& random, uint8_t* block) {
  std::normal_distribution<float> normal(0, 1.0f / 16);
  const auto put = [&](size_t at, auto bits) { std::memcpy(block + at, &bits, sizeof bits); };
  for (const size_t at : halves_of(type)) put(at, float_to_half(normal(random)));
  if (type == Type::f32 || type == Type::q8_k) put(0, normal(random));
  if (type == Type::bf16) put(0, float_to_bfloat(normal(random)));
  if (type == Type::mxfp4) block[0] = static_cast<uint8_t>(120 + random() % 8);
  if (type == Type::nvfp4)
    for (size_t i = 0; i < 4; ++i) block[i] = static_cast<uint8_t>(0x10 + random() % 0x20);
  if (type == Type::iq1_m) {  // a nibble of the f16 in the upper half of each second byte
    const uint16_t half = float_to_half(normal(random));
    for (size_t i = 0; i < 4; ++i)
      block[49 + 2 * i] = static_cast<uint8_t>((block[49 + 2 * i] & 15) | (half >> 4 * i & 15) << 4);
  }
}

}  // namespace

std::vector<Type> all_quant_types() {
  std::vector<Type> types;
  for (int i = 0; i < quant::kTypes; ++i) types.push_back(static_cast<Type>(i));
  return types;
}

HostTensor golden(Type type, std::string_view what) {
  static const Safetensors file = Safetensors::open(WEFT_SOURCE_DIR "/tests/data/quant/golden.safetensors");
  return file.load(std::string(quant::traits(type).name) + "." + std::string(what));
}

HostTensor random_blocks(Type type, int64_t rows, int64_t k, unsigned seed) {
  const uint32_t size = quant::traits(type).block_bytes;
  HostTensor w{DType::u8, {rows, static_cast<int64_t>(quant::row_bytes(type, static_cast<uint64_t>(k)))}, {}};
  w.bytes.resize(static_cast<size_t>(element_count(w.shape)));
  std::mt19937 random(seed);
  for (std::byte& b : w.bytes) b = static_cast<std::byte>(random());
  for (size_t at = 0; at < w.bytes.size(); at += size)
    put_scales(type, random, reinterpret_cast<uint8_t*>(w.bytes.data() + at));
  return w;
}

}  // namespace weft::test
