// Stores past the caches, by themselves and in the kernels whose results are large enough for them.
#include "backend/cpu/stream.h"

#include <doctest/doctest.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "array/half.h"
#include "array/host_tensor.h"
#include "backend/cpu/transpose.h"
#include "ops/shorthand.h"

using namespace weft;

namespace {

/// Elements of what `value(row, column)` says, in row-major order, that are not so.
template <typename Value>
int64_t wrong(const Array& x, const Value& value) {
  const std::vector<float> got = x.to_vector();
  const int64_t columns = x.shape(-1);
  int64_t count = 0;
  for (int64_t i = 0; i < x.size(); ++i)
    count += got[static_cast<size_t>(i)] != value(i / columns, i % columns);
  return count;
}

/// (rows, columns) of small numbers that tell neighbours and rows apart.
Array pattern(int64_t rows, int64_t columns, DType dtype) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  const Array y = as(Array::from_vector(values, {rows, columns}), dtype);
  eval(y);
  return y;
}

}  // namespace

TEST_SUITE("base: streams") {
  TEST_CASE("every count at every place of a line") {
    alignas(64) std::byte from[256], to[256];
    for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i);
    for (size_t place = 0; place < 64; ++place)
      for (size_t count = 0; count <= 160; ++count) {
        std::fill(std::begin(to), std::end(to), std::byte{255});
        cpu::stream(from + place / 2, to + place, count);
        hwy::FlushStream();
        for (size_t i = 0; i < sizeof to; ++i) {
          const bool inside = i >= place && i < place + count;
          if (to[i] != (inside ? from[i - place + place / 2] : std::byte{255}))
            FAIL("byte ", i, " of ", count, " at ", place);
        }
      }
  }

  TEST_CASE("results larger than the caches") {
    // 33 MiB, also where rows end inside of lines and numbers are cut off at the end of a tile.
    for (const auto& [dtype, width] :
         {std::pair{DType::f32, int64_t{2944}}, {DType::f32, 2951}, {DType::f16, 5888}, {DType::f16, 5891}}) {
      const int64_t columns = width;
      CAPTURE(name_of(dtype));
      CAPTURE(columns);
      const int64_t rows = 2950;
      const Array x = pattern(rows, columns, dtype);
      const auto value = [&](int64_t r, int64_t c) { return static_cast<float>((r * columns + c) % 251); };
      CHECK(wrong(x + x, [&](int64_t r, int64_t c) { return 2 * value(r, c); }) == 0);
      CHECK(wrong(-x * 2 + x, [&](int64_t r, int64_t c) { return -value(r, c); }) == 0);
      const Array twice = x + x, more = twice + 1;
      eval(std::vector{twice, more});  // one is a result, and read
      CHECK(wrong(twice, [&](int64_t r, int64_t c) { return 2 * value(r, c); }) == 0);
      CHECK(wrong(more, [&](int64_t r, int64_t c) { return 2 * value(r, c) + 1; }) == 0);
      const Array row = slice_dim(x, 0, 0, 1);
      CHECK(wrong(x + row, [&](int64_t r, int64_t c) { return value(r, c) + value(0, c); }) == 0);
      CHECK(wrong(x - max(x, {-1}, true), [&](int64_t r, int64_t c) { return value(r, c) - 250; }) == 0);
      const auto moved = [](const Array& view) { return reshape(reshape(view, {-1}), view.shape()); };
      CHECK(wrong(moved(transpose(x, 0, 1)), [&](int64_t c, int64_t r) { return value(r, c); }) == 0);
      CHECK(wrong(moved(slice_dim(x, 1, 1, columns)),
                  [&](int64_t r, int64_t c) { return value(r, c + 1); }) == 0);
    }
  }

  TEST_CASE("transposes of more rows and columns than a task has") {
    for (const DType dtype : {DType::f32, DType::f16}) {
      CAPTURE(name_of(dtype));
      const int64_t rows = dtype == DType::f32 ? 1030 : 2060, columns = 8301;
      const Array turned = transpose(pattern(rows, columns, dtype), 0, 1);
      CHECK(wrong(reshape(reshape(turned, {-1}), turned.shape()),
                  [&](int64_t c, int64_t r) { return static_cast<float>((r * columns + c) % 251); }) == 0);
      const Array heads = reshape(slice_dim(pattern(rows, columns, dtype), 1, 0, 8192), {rows, 16, 512});
      const Array first = transpose(heads, 0, 1);
      CHECK(wrong(reshape(reshape(first, {-1}), {16 * rows, 512}), [&](int64_t r, int64_t c) {
              return static_cast<float>((r % rows * columns + r / rows * 512 + c) % 251);
            }) == 0);
    }
  }

  TEST_CASE("transposes past the caches, on processors that read ahead and on others") {
    constexpr int64_t kStride = 192;  // whole lines of 4 bytes
    alignas(64) static uint32_t to[kStride * kStride];
    std::vector<uint32_t> from(size_t{200} * 200);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i);
    for (const bool ahead : {false, true})
      for (const auto& [rows, columns] :
           {std::pair{16, 16}, {64, 64}, {70, 130}, {130, 70}, {15, 17}, {1, 192}, {192, 1}}) {
        CAPTURE(ahead);
        CAPTURE(rows);
        CAPTURE(columns);
        std::ranges::fill(to, ~0u);
        cpu::transpose_block(4, {.from = from.data(),
                                 .to = to,
                                 .from_stride = 200,
                                 .to_stride = kStride,
                                 .rows = rows,
                                 .columns = columns,
                                 .is_streamed = true,
                                 .follows_streams = ahead});
        hwy::FlushStream();
        int64_t wrong_elements = 0;
        for (int64_t r = 0; r < kStride; ++r)
          for (int64_t c = 0; c < kStride; ++c)
            wrong_elements += to[r * kStride + c] !=
                              (r < rows && c < columns ? from[static_cast<size_t>(c * 200 + r)] : ~0u);
        CHECK(wrong_elements == 0);
      }
  }

  TEST_CASE("halves of every kind, larger than the caches") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      CAPTURE(name_of(dtype));
      const auto widen = dtype == DType::f16 ? half_to_float : bfloat_to_float;
      const auto narrow = dtype == DType::f16 ? float_to_half : float_to_bfloat;
      const size_t count = (size_t{33} << 20) / 2 + 7;  // the last are no strip
      const auto bits_of = [](size_t i, size_t factor) {
        return static_cast<uint16_t>(i * factor + (i >> 16));
      };
      const auto filled = [&](size_t factor) {  // all values of 16 bits, in changing pairs
        HostTensor host{dtype, {static_cast<int64_t>(count)}, std::vector<std::byte>(2 * count)};
        for (size_t i = 0; i < count; ++i) {
          const uint16_t bits = bits_of(i, factor);
          std::memcpy(host.bytes.data() + 2 * i, &bits, 2);
        }
        return Array::from_host(host);
      };
      const HostTensor sums = (filled(1) + filled(40'503)).to_host();
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        uint16_t got;
        std::memcpy(&got, sums.bytes.data() + 2 * i, 2);
        const float sum = widen(bits_of(i, 1)) + widen(bits_of(i, 40'503));
        wrong += std::isnan(sum) ? !std::isnan(widen(got)) : got != narrow(sum);
      }
      CHECK(wrong == 0);
    }
  }
}
