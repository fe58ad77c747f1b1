#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "array/element.h"
#include "backend/cpu/primitives.h"

/// Tensors for the tests of the primitive kernels, as a slow reference sees them: a value per index.
namespace weft::test::primitives {

using Number = long double;  // holds every i64 and every float

inline const std::vector<DType> kAllTypes = {DType::f32, DType::f16, DType::bf16, DType::i32,    DType::u32,
                                             DType::i64, DType::u8,  DType::i8,   DType::boolean};

inline Number read(DType dtype, const std::byte* data, int64_t i) {
  return number_at<Number>(dtype, data, static_cast<size_t>(i));
}
inline void write(DType dtype, std::byte* data, int64_t i, Number value) {
  set_number(dtype, data, static_cast<size_t>(i), value);
}

/// What storing in `dtype` makes of a value: integers wrap, floats round once.
inline Number stored(DType dtype, Number value) {
  std::byte bytes[8];
  write(dtype, bytes, 0, value);
  return read(dtype, bytes, 0);
}

inline Shape index_at(int64_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return index;
}

inline int64_t flat_at(const Shape& index, const Shape& shape) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

enum class Style { plain, transposed, expanded, flipped, sliced };
inline const std::vector<Style> kStyles = {Style::plain, Style::transposed, Style::expanded, Style::flipped,
                                           Style::sliced};

/// A tensor and its storage; every element of the storage has a value, also those the layout leaves out.
struct Sample {
  DType dtype = DType::f32;
  Layout layout;
  std::vector<std::byte> storage;

  cpu::Tensor tensor() const { return {const_cast<std::byte*>(storage.data()), dtype, layout}; }
  int64_t count() const { return element_count(layout.shape); }
  int64_t place(const Shape& index) const {
    int64_t at = layout.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * layout.strides[d];
    return at;
  }
  Number at(const Shape& index) const { return read(dtype, storage.data(), place(index)); }
  void set(const Shape& index, Number value) { write(dtype, storage.data(), place(index), value); }
  std::vector<Number> values() const {
    std::vector<Number> result(static_cast<size_t>(count()));
    for (int64_t i = 0; i < count(); ++i) {
      int64_t rest = i, place_of_i = layout.offset;
      for (size_t d = layout.shape.size(); d-- > 0; rest /= layout.shape[d])
        place_of_i += rest % layout.shape[d] * layout.strides[d];
      result[static_cast<size_t>(i)] = read(dtype, storage.data(), place_of_i);
    }
    return result;
  }
};

inline Sample make(DType dtype, const Shape& shape, Style style = Style::plain) {
  const size_t rank = shape.size();
  Shape inside = shape;  // of the storage
  std::vector<int64_t> dims(rank), ones(rank, 1), starts(rank), steps(rank, style == Style::flipped ? -1 : 2);
  for (size_t d = 0; d < rank; ++d) {
    dims[d] = static_cast<int64_t>(rank - 1 - d);
    if (style == Style::transposed) inside[d] = shape[rank - 1 - d];
    if (style == Style::expanded && d % 2 == 0 && shape[d] > 0) inside[d] = 1;
    if (style == Style::sliced) inside[d] = 2 * shape[d] + 1;
    starts[d] = style == Style::flipped ? shape[d] - 1 : 1;
  }
  Sample sample{dtype, Layout::contiguous(inside), {}};
  sample.storage.resize(static_cast<size_t>(element_count(inside)) * size_of(dtype));
  if (style == Style::transposed) sample.layout = sample.layout.permuted(dims);
  if (style == Style::expanded) sample.layout = sample.layout.expanded(shape);
  if (style == Style::flipped || style == Style::sliced)
    sample.layout = sample.layout.sliced(starts, steps, shape);
  return sample;
}

/// Sixteenths in [-2, 2): exact in every float dtype, so that short sums are exact too. Integers in [-8, 8)
/// or [0, 16).
inline Sample random(DType dtype, const Shape& shape, Style style = Style::plain, uint32_t seed = 1) {
  Sample sample = make(dtype, shape, style);
  std::mt19937 generator(seed);
  const auto elements = static_cast<int64_t>(sample.storage.size() / size_of(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    const int draw = static_cast<int>(generator() >> 8);
    Number value = draw % 16;
    if (is_float(dtype)) value = static_cast<Number>(draw % 64 - 32) / 16;
    if (dtype == DType::i32 || dtype == DType::i64 || dtype == DType::i8) value -= 8;
    if (dtype == DType::boolean) value = draw % 2;
    write(dtype, sample.storage.data(), i, value);
  }
  return sample;
}

/// i32 indices below `size`.
inline Sample random_indices(const Shape& shape, int64_t size, Style style = Style::plain,
                             uint32_t seed = 7) {
  Sample sample = make(DType::i32, shape, style);
  std::mt19937 generator(seed);
  for (size_t i = 0; i < sample.storage.size() / 4; ++i)
    write(DType::i32, sample.storage.data(), static_cast<int64_t>(i),
          generator() % static_cast<uint32_t>(size));
  return sample;
}

struct Output {
  DType dtype;
  Shape shape;
};

/// Runs the kernel with 1 and with 3 threads; both must write the same bytes.
inline std::vector<Sample> call(cpu::Kernel kernel, const std::vector<const Sample*>& inputs,
                                const std::vector<Output>& outputs, const Attrs& attrs) {
  static ThreadPool one(1), three(3);
  std::vector<cpu::Tensor> in;
  for (const Sample* input : inputs) in.push_back(input->tensor());
  std::vector<Sample> first;
  for (ThreadPool* pool : {&one, &three}) {
    std::vector<Sample> results;
    std::vector<cpu::Tensor> out;
    for (const Output& output : outputs) results.push_back(make(output.dtype, output.shape));
    for (Sample& result : results) {
      std::fill(result.storage.begin(), result.storage.end(), std::byte{0x5a});
      out.push_back(result.tensor());
    }
    kernel(*pool, in, out, attrs);
    if (pool == &one)
      first = std::move(results);
    else
      for (size_t i = 0; i < first.size(); ++i) CHECK(results[i].storage == first[i].storage);
  }
  return first;
}

/// One check for a whole tensor; NaN must meet NaN.
inline void check_values(const Sample& got, const std::vector<Number>& want, Number tolerance = 0) {
  const std::vector<Number> values = got.values();
  REQUIRE(values.size() == want.size());
  size_t wrong = 0, where = 0;
  for (size_t i = values.size(); i-- > 0;) {
    const bool same = values[i] == want[i] || (std::isnan(values[i]) && std::isnan(want[i]));
    const Number distance = std::abs(values[i] - want[i]);
    if (!same && !(distance <= tolerance * std::max<Number>(1, std::abs(want[i])))) ++wrong, where = i;
  }
  if (wrong > 0)
    FAIL_CHECK(wrong << " of " << values.size() << " wrong; first at " << where << ": got "
                     << static_cast<double>(values[where]) << ", want " << static_cast<double>(want[where]));
  CHECK(wrong == 0);
}

/// Rounding of a result of the size of 1 in a dtype.
inline Number epsilon(DType dtype) {
  return dtype == DType::f32 ? 1e-6L : dtype == DType::f16 ? 0x1p-10L : dtype == DType::bf16 ? 0x1p-7L : 0;
}

/// body(dtype, style, shape) with the case in the failure message.
template <typename Body>
void every_case(const std::vector<DType>& dtypes, const std::vector<Shape>& shapes, const Body& body) {
  for (DType dtype : dtypes)
    for (Style style : kStyles)
      for (const Shape& shape : shapes) {
        const std::string what = std::string(name_of(dtype)) + " style " +
                                 std::to_string(static_cast<int>(style)) + " " + to_string(shape);
        CAPTURE(what);
        body(dtype, style, shape);
      }
}

inline std::string message_of(const auto& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace weft::test::primitives
