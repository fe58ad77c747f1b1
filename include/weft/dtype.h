#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace weft {

enum class DType : uint8_t { f32, f16, bf16, i32, u32, i64, u8, i8, boolean };

size_t size_of(DType dtype);            ///< bytes of one element
std::string_view name_of(DType dtype);  ///< "f32", "bool"
/// Throws ErrorKind::invalid with the names there are.
DType dtype_from_name(std::string_view name);

constexpr bool is_float(DType d) {
  return d == DType::f32 || d == DType::f16 || d == DType::bf16;
}
constexpr bool is_integer(DType d) {
  return !is_float(d) && d != DType::boolean;
}

/// The dtype of an op on two arrays: the smallest that holds both, a float's own where the other is whole.
/// Table: docs/dtypes.md.
DType promote(DType a, DType b);
/// The dtype of a number beside an array: the array's, or f32 or i32 where the number is of a higher kind.
/// `number` is f32, i32 or bool.
DType promote_number(DType array, DType number);

/// Half floats as they are stored. From a float they round to nearest even, to a float they are exact.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  operator float() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  operator float() const;
};

/// The C++ types of elements: float, Float16, BFloat16, int32_t, uint32_t, int64_t, uint8_t, int8_t, bool.
template <typename T>
concept Element = std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> ||
                  std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t> || std::is_same_v<T, int64_t> ||
                  std::is_same_v<T, uint8_t> || std::is_same_v<T, int8_t> || std::is_same_v<T, bool>;

template <Element T>
constexpr DType dtype_of() {
  if (std::is_same_v<T, float>) return DType::f32;
  if (std::is_same_v<T, Float16>) return DType::f16;
  if (std::is_same_v<T, BFloat16>) return DType::bf16;
  if (std::is_same_v<T, int32_t>) return DType::i32;
  if (std::is_same_v<T, uint32_t>) return DType::u32;
  if (std::is_same_v<T, int64_t>) return DType::i64;
  if (std::is_same_v<T, uint8_t>) return DType::u8;
  if (std::is_same_v<T, int8_t>) return DType::i8;
  return DType::boolean;
}

}  // namespace weft
