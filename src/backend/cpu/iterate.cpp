#include "backend/cpu/iterate.h"

#include <cstring>

#include "array/half.h"
#include "backend/cpu/halves.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

template <typename From, typename To, typename Convert>
void convert(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count, Convert one) {
  if (from_stride == 1 && to_stride == 1)
    for (int64_t i = 0; i < count; ++i) to[i] = one(from[i]);
  else
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = one(from[i * from_stride]);
}

template <typename U>
void copy_as(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t count) {
  const U* source = reinterpret_cast<const U*>(from);
  U* target = reinterpret_cast<U*>(to);
  if (from_stride == 0 && to_stride == 1)
    std::fill_n(target, count, *source);
  else
    convert(source, from_stride, target, to_stride, count, [](U v) { return v; });
}

}  // namespace

Walk::Walk(const Shape& shape, std::initializer_list<const Layout*> operands) {
  size_t k = 0;
  for (const Layout* layout : operands) start[k++] = layout->offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    Offsets strides{};
    k = 0;
    for (const Layout* layout : operands) strides[k++] = layout->strides[d];
    add(shape[d], strides);
  }
}

void Walk::add(int64_t size, const Offsets& strides) {
  count_ *= size;
  if (size == 1) return;
  const auto continues = [&](const Dim& outer) {
    for (size_t k = 0; k < kOperands; ++k)
      if (outer.strides[k] != strides[k] * size) return false;
    return true;
  };
  if (!dims_.empty() && continues(dims_.back())) {
    dims_.back() = {dims_.back().size * size, strides};
    return;
  }
  if (dims_.size() == kMaxRank)
    fail(ErrorKind::unsupported, "[cpu] an array of more than {} dims that cannot be merged", kMaxRank);
  dims_.push_back({size, strides});
}

size_t dim_of(std::string_view op, int64_t dim, size_t rank) {
  return static_cast<size_t>(normalize_dim(op, dim, std::max<size_t>(rank, 1)));
}

Lines lines_along(std::string_view op, const Layout& in, const Layout& out, int64_t dim) {
  const size_t along = dim_of(op, dim, in.shape.size());
  Lines lines;
  lines.rest.start = {in.offset, out.offset, 0};
  for (size_t d = 0; d < in.shape.size(); ++d) {
    if (d == along) {
      lines.size = in.shape[d];
      lines.in_stride = in.strides[d];
      lines.out_stride = out.strides[d];
    } else {
      lines.rest.add(in.shape[d], {in.strides[d], out.strides[d], 0});
    }
  }
  return lines;
}

template <>
void load_run(const Tensor& from, int64_t offset, int64_t stride, int64_t count, float* to) {
  switch (from.dtype) {
    case DType::f32:
      return convert(from.as<const float>() + offset, stride, to, 1, count, [](float v) { return v; });
    case DType::f16:
      if (stride == 1) return halves_to_floats(from.as<const uint16_t>() + offset, to, count);
      return convert(from.as<const uint16_t>() + offset, stride, to, 1, count, half_to_float);
    case DType::bf16:
      if (stride == 1) return bfloats_to_floats(from.as<const uint16_t>() + offset, to, count);
      return convert(from.as<const uint16_t>() + offset, stride, to, 1, count, bfloat_to_float);
    default:
      fail(ErrorKind::unsupported, "[cpu] {} is not a float dtype", name_of(from.dtype));
  }
}

template <>
void load_run(const Tensor& from, int64_t offset, int64_t stride, int64_t count, int64_t* to) {
  const auto widen = [](auto v) { return static_cast<int64_t>(v); };
  switch (from.dtype) {
    case DType::i32:
      return convert(from.as<const int32_t>() + offset, stride, to, 1, count, widen);
    case DType::u32:
      return convert(from.as<const uint32_t>() + offset, stride, to, 1, count, widen);
    case DType::i64:
      return convert(from.as<const int64_t>() + offset, stride, to, 1, count, widen);
    case DType::u8:
    case DType::boolean:
      return convert(from.as<const uint8_t>() + offset, stride, to, 1, count, widen);
    case DType::i8:
      return convert(from.as<const int8_t>() + offset, stride, to, 1, count, widen);
    default:
      fail(ErrorKind::unsupported, "[cpu] {} is not an integer dtype", name_of(from.dtype));
  }
}

template <>
void store_run(const float* from, int64_t count, const Tensor& to, int64_t offset, int64_t stride) {
  switch (to.dtype) {
    case DType::f32:
      return convert(from, 1, to.as<float>() + offset, stride, count, [](float v) { return v; });
    case DType::f16:
      if (stride == 1) return floats_to_halves(from, to.as<uint16_t>() + offset, count);
      return convert(from, 1, to.as<uint16_t>() + offset, stride, count, float_to_half);
    case DType::bf16:
      if (stride == 1) return floats_to_bfloats(from, to.as<uint16_t>() + offset, count);
      return convert(from, 1, to.as<uint16_t>() + offset, stride, count, float_to_bfloat);
    default:
      fail(ErrorKind::unsupported, "[cpu] {} is not a float dtype", name_of(to.dtype));
  }
}

template <>
void store_run(const int64_t* from, int64_t count, const Tensor& to, int64_t offset, int64_t stride) {
  switch (to.dtype) {
    case DType::i32:
    case DType::u32:
      return convert(from, 1, to.as<uint32_t>() + offset, stride, count,
                     [](int64_t v) { return static_cast<uint32_t>(v); });
    case DType::i64:
      return convert(from, 1, to.as<int64_t>() + offset, stride, count, [](int64_t v) { return v; });
    case DType::u8:
    case DType::i8:
      return convert(from, 1, to.as<uint8_t>() + offset, stride, count,
                     [](int64_t v) { return static_cast<uint8_t>(v); });
    case DType::boolean:
      return convert(from, 1, to.as<uint8_t>() + offset, stride, count,
                     [](int64_t v) { return static_cast<uint8_t>(v != 0); });
    default:
      fail(ErrorKind::unsupported, "[cpu] {} is not an integer dtype", name_of(to.dtype));
  }
}

void copy_run(size_t bytes, const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t count) {
  if (count <= 0) return;
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return copy_as<uint8_t>(from, from_stride, to, to_stride, count);
    case 2:
      return copy_as<uint16_t>(from, from_stride, to, to_stride, count);
    case 4:
      return copy_as<uint32_t>(from, from_stride, to, to_stride, count);
    default:
      return copy_as<uint64_t>(from, from_stride, to, to_stride, count);
  }
}

}  // namespace weft::cpu
