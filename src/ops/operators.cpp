// Operators on arrays and numbers.
#include "base/error.h"
#include "ops/shorthand.h"

namespace weft {
namespace {

Array binary(std::string_view op, const Term& a, const Term& b) {
  return call(op, {a.beside(b), b.beside(a)});
}

}  // namespace

Array Term::beside(const Term& other) const {
  if (!is_number_) return array_;
  if (other.is_number_) fail(ErrorKind::invalid, "[array] two numbers make no array");
  if (!other.array_) return {};  // the op says what is missing
  return call(
      "constant", {},
      {{"value", value_}, {"dtype", std::string(name_of(promote_number(other.array_.dtype(), dtype_)))}},
      other.array_.device());
}

Array operator+(const Term& a, const Term& b) {
  return binary("add", a, b);
}
Array operator-(const Term& a, const Term& b) {
  return binary("sub", a, b);
}
Array operator*(const Term& a, const Term& b) {
  return binary("mul", a, b);
}
Array operator/(const Term& a, const Term& b) {
  return binary("div", a, b);
}
Array operator%(const Term& a, const Term& b) {
  return binary("remainder", a, b);
}
Array operator-(const Array& x) {
  return call("neg", {x});
}

Truths operator==(const Term& a, const Term& b) {
  return {binary("eq", a, b)};
}
Truths operator!=(const Term& a, const Term& b) {
  return {binary("ne", a, b)};
}
Truths operator<(const Term& a, const Term& b) {
  return {binary("lt", a, b)};
}
Truths operator<=(const Term& a, const Term& b) {
  return {binary("le", a, b)};
}
Truths operator>(const Term& a, const Term& b) {
  return {binary("gt", a, b)};
}
Truths operator>=(const Term& a, const Term& b) {
  return {binary("ge", a, b)};
}

Array operator&(const Term& a, const Term& b) {
  return binary("bitwise_and", a, b);
}
Array operator|(const Term& a, const Term& b) {
  return binary("bitwise_or", a, b);
}
Array operator^(const Term& a, const Term& b) {
  return binary("bitwise_xor", a, b);
}
Array operator<<(const Term& a, const Term& b) {
  return binary("shift_left", a, b);
}
Array operator>>(const Term& a, const Term& b) {
  return binary("shift_right", a, b);
}
Array operator~(const Array& x) {
  return x.dtype() == DType::boolean ? call("logical_not", {x}) : x ^ -1;
}

Array& operator+=(Array& a, const Term& b) {
  return a = a + b;
}
Array& operator-=(Array& a, const Term& b) {
  return a = a - b;
}
Array& operator*=(Array& a, const Term& b) {
  return a = a * b;
}
Array& operator/=(Array& a, const Term& b) {
  return a = a / b;
}

Array Array::operator[](int64_t index) const {
  if (ndim() == 0) fail(ErrorKind::invalid, "[array] a scalar has no element {}", index);
  const int64_t count = shape()[0], at = index < 0 ? index + count : index;
  if (at < 0 || at >= count)
    fail(ErrorKind::invalid, "[array] there is no element {} in a dim of {}", index, count);
  return squeeze(slice_dim(*this, 0, at, at + 1), 0);
}

}  // namespace weft
