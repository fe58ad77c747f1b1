#include "weft/dtype.h"

#include <array>

#include "array/half.h"
#include "base/error.h"

namespace weft {
namespace {

struct Row {
  std::string_view name;
  size_t size;
};
constexpr std::array<Row, 9> kRows = {{{"f32", 4},
                                       {"f16", 2},
                                       {"bf16", 2},
                                       {"i32", 4},
                                       {"u32", 4},
                                       {"i64", 8},
                                       {"u8", 1},
                                       {"i8", 1},
                                       {"bool", 1}}};

}  // namespace

size_t size_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].size;
}
std::string_view name_of(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  fail(ErrorKind::invalid, "[dtype] '{}' is not known; use f32, f16, bf16, i32, u32, i64, u8, i8 or bool",
       name);
}

Float16::Float16(float value) : bits(float_to_half(value)) {}
Float16::operator float() const {
  return half_to_float(bits);
}
BFloat16::BFloat16(float value) : bits(float_to_bfloat(value)) {}
BFloat16::operator float() const {
  return bfloat_to_float(bits);
}

}  // namespace weft
