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

enum class Kind { truth, whole, real };
Kind kind_of(DType dtype) {
  return dtype == DType::boolean ? Kind::truth : is_float(dtype) ? Kind::real : Kind::whole;
}
bool is_signed(DType dtype) {
  return dtype == DType::i8 || dtype == DType::i32 || dtype == DType::i64;
}

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

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) || is_float(b)) {
    if (is_float(a) && is_float(b)) return DType::f32;  // f16 and bf16 hold parts of it each
    return is_float(a) ? a : b;
  }
  if (kind_of(a) != kind_of(b)) return kind_of(a) > kind_of(b) ? a : b;  // one is bool
  const bool a_signed = is_signed(a), b_signed = is_signed(b);
  if (a_signed == b_signed) return size_of(a) > size_of(b) ? a : b;
  const DType with_sign = a_signed ? a : b, without = a_signed ? b : a;
  if (size_of(with_sign) > size_of(without)) return with_sign;
  return without == DType::u8 ? DType::i32 : DType::i64;
}

DType promote_number(DType array, DType number) {
  return kind_of(number) > kind_of(array) ? number : array;
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
