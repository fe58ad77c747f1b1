#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

/// ggml's block formats: a row of weights is a sequence of blocks, each a few scales and small integers.
/// A new type is one enumerator, one row in quant.cpp and one function, declared in codes.h, and its lines in
/// the GPU's quant.wgsl.
namespace weft::quant {

enum class Type : uint8_t {
  f16,
  bf16,
  f32,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  q8_k,
  iq4_nl,
  iq4_xs,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
};
inline constexpr int kTypes = static_cast<int>(Type::nvfp4) + 1;

struct Traits {
  std::string_view name;  ///< "q4_k"
  int ggml_id;            ///< the number in a GGUF file
  uint32_t block_elements, block_bytes;
};

const Traits& traits(Type type);
/// Throws ErrorKind::invalid with the names there are.
Type type_from_name(std::string_view name);
/// Nothing for ggml's integer types and for types that weft does not know.
std::optional<Type> type_from_ggml(int id);

/// Bytes of a row. Throws ErrorKind::invalid when `elements` is not a whole number of blocks.
uint64_t row_bytes(Type type, uint64_t elements);

/// `elements` values from row_bytes(type, elements) bytes at `blocks`, which need no alignment. Thread-safe.
/// Every product but those of q6_k and q8_k is exact in f32, and those two add nothing: the values are the
/// same bits on every compiler, with fused multiply-add and without.
void dequantize(Type type, const std::byte* blocks, float* out, uint64_t elements);

/// One row: the bytes of ggml's reference quantisers, on every compiler. `out` has row_bytes(type,
/// row.size()) bytes. Thread-safe. Throws ErrorKind::invalid when a value is not finite or too large for the
/// type's scales, and for types that need to know which elements are important (quant/importance.h).
void encode(Type type, std::span<const float> row, std::span<std::byte> out);

}  // namespace weft::quant
