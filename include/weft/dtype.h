#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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

}  // namespace weft
