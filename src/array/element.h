#pragma once

#include <cstddef>
#include <cstring>

#include "array/host_tensor.h"
#include "weft/dtype.h"

/// Elements in host memory, as values of their C++ types.
namespace weft {

/// f(T{}) where T is the C++ type of the dtype's elements.
template <typename F>
decltype(auto) with_element_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(Float16{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::i32:
      return f(int32_t{});
    case DType::u32:
      return f(uint32_t{});
    case DType::i64:
      return f(int64_t{});
    case DType::u8:
      return f(uint8_t{});
    case DType::i8:
      return f(int8_t{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

/// Element i; a bool is any byte that is not 0.
template <Element T>
T read_element(const std::byte* data, size_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return data[i] != std::byte{0};
  } else {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    return value;
  }
}

template <Element T>
void write_element(std::byte* data, size_t i, T value) {
  if constexpr (std::is_same_v<T, bool>)
    data[i] = std::byte{value};
  else
    std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

/// Element i as a Number that holds values of every dtype (double does, but for large i64).
template <typename Number>
Number number_at(DType dtype, const std::byte* data, size_t i) {
  return with_element_type(dtype,
                           [&]<typename T>(T) { return static_cast<Number>(read_element<T>(data, i)); });
}
template <typename Number = double>
Number number_at(const HostTensor& tensor, size_t i) {
  return number_at<Number>(tensor.dtype, tensor.bytes.data(), i);
}

/// A number as an element: floats round, integers wrap, a bool is whether it is not 0.
template <typename Number>
void set_number(DType dtype, std::byte* data, size_t i, Number value) {
  with_element_type(dtype, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, bool>)
      write_element<T>(data, i, value != 0);
    else if constexpr (std::is_integral_v<T>)
      write_element<T>(data, i, static_cast<T>(static_cast<int64_t>(value)));
    else
      write_element<T>(data, i, T(static_cast<float>(value)));
  });
}

}  // namespace weft
