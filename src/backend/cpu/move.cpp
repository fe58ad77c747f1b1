#include <hwy/cache_control.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/stream.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

using Tensors = std::span<const Tensor>;

std::byte* at(std::byte* base, int64_t element, size_t bytes) {
  return base + element * static_cast<int64_t>(bytes);
}

/// body(begin, end) over [0, count) in signed numbers.
template <typename Body>
void parallel(ThreadPool& pool, int64_t count, int64_t grain, const Body& body) {
  pool.for_each(static_cast<size_t>(count), static_cast<size_t>(grain), [&](size_t begin, size_t end) {
    body(static_cast<int64_t>(begin), static_cast<int64_t>(end));
  });
}

constexpr int64_t kRows = 512, kColumns = 512;  // of a task

/// A square of 16-byte vectors in registers: out[i][j] = in[j][i]. Interleaving the halves log2(kLanes) times
/// transposes.
template <typename U>
struct Square {
  static constexpr size_t kLanes = 16 / sizeof(U);
  using Vector [[gnu::vector_size(16)]] = U;
  Vector rows[kLanes];

  void transpose() {
    for (size_t round = 1; round < kLanes; round *= 2) interleave(std::make_index_sequence<kLanes>());
  }

 private:
  // Without a loop: GCC 12 keeps an array in registers only when every index is a constant from the start.
  template <size_t... row>
  void interleave(std::index_sequence<row...> all) {
    const Vector next[] = {mixed<row>(all)...};
    ((rows[row] = next[row]), ...);
  }
  template <size_t row, size_t... lane>
  Vector mixed(std::index_sequence<lane...>) const {
    return __builtin_shufflevector(rows[row / 2], rows[row / 2 + kLanes / 2],
                                   ((row % 2 * kLanes + lane) / 2 + lane % 2 * kLanes)...);
  }
};

/// memcpy, or stream.
using Put = void (*)(const void* from, void* to, size_t bytes);

void put_cached(const void* from, void* to, size_t bytes) {
  std::memcpy(to, from, bytes);
}

Put put_for(int64_t bytes) {
  return is_streamed(static_cast<uint64_t>(bytes)) ? stream : put_cached;
}

/// (rows, columns) whose rows are side by side in the input and whose columns are in the output. Blocks of
/// one cache line by four go through a buffer: both sides then use whole lines, also when their strides are
/// powers of two that share a cache set.
template <typename U>
void transpose_block(const U* from, int64_t from_stride, U* to, int64_t to_stride, int64_t rows,
                     int64_t columns, Put put) {
  constexpr int64_t kSide = 64 / sizeof(U), kWidth = 4 * kSide, kLanes = Square<U>::kLanes;
  alignas(64) U buffer[kSide][kWidth];
  for (int64_t c = 0; c < columns; c += kWidth) {
    // Meanwhile the next columns come into L2, in the order in which they lie. In L1 lines of such strides
    // drive each other out.
    const U* next = from + (c + kWidth) * from_stride;
    int64_t ahead = 0;
    for (int64_t r = 0; r < rows; r += kSide) {
      const int64_t height = std::min(kSide, rows - r), width = std::min(kWidth, columns - c);
      const int64_t whole = height == kSide ? width / kSide * kSide : 0;  // columns that fill lines
      const U* source = from + c * from_stride + r;
      U* target = to + r * to_stride + c;
      for (int64_t j = 0; j < whole; j += kLanes) {
        for (int64_t q = 0; q < kLanes; ++q) __builtin_prefetch(next + ahead + q * kSide, 0, 2);
        ahead += kLanes * kSide;
        if (ahead >= rows) {
          ahead = 0;
          next += from_stride;
        }
        for (int64_t i = 0; i < kSide; i += kLanes) {
          Square<U> square;
          for (int64_t q = 0; q < kLanes; ++q)
            std::memcpy(&square.rows[q], source + (j + q) * from_stride + i, 16);
          square.transpose();
          for (int64_t q = 0; q < kLanes; ++q) std::memcpy(&buffer[i + q][j], &square.rows[q], 16);
        }
      }
      if (whole > 0)
        for (int64_t i = 0; i < kSide; ++i)
          put(buffer[i], target + i * to_stride, static_cast<size_t>(whole) * sizeof(U));
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = whole; j < width; ++j) target[i * to_stride + j] = source[j * from_stride + i];
    }
  }
}

/// The dim that is contiguous in the input, where the inner dim is contiguous in the output only; -1 if there
/// is none or the blocks would be slivers.
int64_t transposed_dim(const Walk& walk) {
  const std::vector<Walk::Dim>& dims = walk.dims();
  if (dims.size() < 2 || dims.back().strides[1] != 1 || dims.back().strides[0] == 1 || dims.back().size < 8)
    return -1;
  for (size_t d = 0; d + 1 < dims.size(); ++d)
    if (dims[d].strides[0] == 1 && dims[d].size >= 8) return static_cast<int64_t>(d);
  return -1;
}

void move_transposed(ThreadPool& pool, size_t bytes, const Tensor& in, const Tensor& out, const Walk& walk,
                     size_t dim) {
  const Walk::Dim rows = walk.dims()[dim], columns = walk.dims().back();
  Walk rest;
  rest.start = walk.start;
  for (size_t d = 0; d + 1 < walk.dims().size(); ++d)
    if (d != dim) rest.add(walk.dims()[d].size, walk.dims()[d].strides);
  const int64_t bands = (rows.size + kRows - 1) / kRows, bars = (columns.size + kColumns - 1) / kColumns;
  const int64_t area = std::min(kRows, rows.size) * std::min(kColumns, columns.size);
  const auto size = static_cast<int64_t>(bytes);
  const Put put = put_for(rows.strides[1] * size % 64 == 0 ? walk.count() * size : 0);  // whole lines only
  parallel(pool, rest.count() * bands * bars, kGrain / area, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t place = task / (bands * bars), row = task / bars % bands * kRows,
                    column = task % bars * kColumns;
      rest.runs(place, place + 1, [&](int64_t, const Walk::Offsets& offsets, int64_t) {
        const auto as = [&]<typename U>(U) {
          transpose_block(in.as<const U>() + offsets[0] + row + column * columns.strides[0],
                          columns.strides[0], out.as<U>() + offsets[1] + row * rows.strides[1] + column,
                          rows.strides[1], std::min(kRows, rows.size - row),
                          std::min(kColumns, columns.size - column), put);
        };
        if (bytes == 1) as(uint8_t{});
        if (bytes == 2) as(uint16_t{});
        if (bytes == 4) as(uint32_t{});
        if (bytes == 8) as(uint64_t{});
      });
    }
    hwy::FlushStream();
  });
}

/// Operand 0 of the walk is read, operand 1 is written.
void move_strided(ThreadPool& pool, const Tensor& in, const Tensor& out, const Walk& walk) {
  const size_t bytes = size_of(in.dtype);
  if (const int64_t dim = transposed_dim(walk); dim >= 0)
    return move_transposed(pool, bytes, in, out, walk, static_cast<size_t>(dim));
  const Walk::Offsets strides = walk.inner().strides;
  const auto size = static_cast<int64_t>(bytes);
  if (strides[0] == 1 && strides[1] == 1) {
    const Put put = put_for(walk.inner().size * size >= 512 ? walk.count() * size : 0);
    return parallel(pool, walk.count(), 4 * kGrain, [&](int64_t begin, int64_t end) {
      walk.runs(begin, end, [&](int64_t, const Walk::Offsets& offsets, int64_t count) {
        put(at(in.data, offsets[0], bytes), at(out.data, offsets[1], bytes),
            static_cast<size_t>(count) * bytes);
      });
      hwy::FlushStream();
    });
  }
  parallel(pool, walk.count(), kGrain, [&](int64_t begin, int64_t end) {
    walk.runs(begin, end, [&](int64_t, const Walk::Offsets& offsets, int64_t count) {
      copy_run(bytes, at(in.data, offsets[0], bytes), strides[0], at(out.data, offsets[1], bytes), strides[1],
               count);
    });
  });
}

/// One element of `dtype` with the attribute's value.
void encode(const Attrs& attrs, DType dtype, std::byte* to) {
  const Tensor element{to, dtype, {}};
  if (is_float(dtype)) {
    const auto value = static_cast<float>(attrs.number("value"));
    return store_run(&value, 1, element, 0, 1);
  }
  const double number = attrs.number("value");
  const int64_t* exact = std::get_if<int64_t>(&attrs.values().find("value")->second);
  if (!exact && !(std::abs(number) < 0x1p63))
    fail(ErrorKind::invalid, "[pad] {} is not a value of {}", number, name_of(dtype));
  const int64_t value = exact ? *exact : dtype == DType::boolean ? number != 0 : static_cast<int64_t>(number);
  store_run(&value, 1, element, 0, 1);
}

/// Rows of the last two dims keep columns [first, last) of row i, the rest is 0.
template <typename Keep>
void keep_band(ThreadPool& pool, const Tensor& in, const Tensor& out, const Keep& keep) {
  const Shape& shape = in.layout.shape;
  const size_t bytes = size_of(in.dtype);
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (element_count(shape) == 0) return;
  const int64_t stride = in.layout.strides.back();
  const Walk walk(Shape(shape.begin(), shape.end() - 1), {&in.layout});
  parallel(pool, walk.count(), std::max<int64_t>(1, kGrain / columns), [&](int64_t begin, int64_t end) {
    walk.runs(begin, end, [&](int64_t position, const Walk::Offsets& offsets, int64_t count) {
      for (int64_t r = 0; r < count; ++r) {
        const auto [first, last] = keep((position + r) % rows, columns);
        const int64_t from = offsets[0] + r * walk.inner().strides[0];
        std::byte* row = at(out.data, (position + r) * columns, bytes);
        std::memset(row, 0, static_cast<size_t>(first) * bytes);
        if (first < last)
          copy_run(bytes, at(in.data, from + first * stride, bytes), stride, at(row, first, bytes), 1,
                   last - first);
        std::memset(at(row, last, bytes), 0, static_cast<size_t>(columns - last) * bytes);
      }
    });
  });
}

void check_matrix(const char* op, const Shape& shape) {
  if (shape.size() < 2) fail(ErrorKind::invalid, "[{}] needs 2 dims, got {}", op, to_string(shape));
}

int64_t diagonal_of(const Attrs& attrs) {
  return attrs.has("diagonal") ? attrs.integer("diagonal") : 0;
}

}  // namespace

void copy(ThreadPool& pool, Tensors in, Tensors out, const Attrs&) {
  move_strided(pool, in[0], out[0], Walk(out[0].layout.shape, {&in[0].layout, &out[0].layout}));
}

void cat(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const size_t dim =
      static_cast<size_t>(normalize_dim("cat", attrs.integer("dim"), out[0].layout.shape.size()));
  Layout target = out[0].layout;
  for (const Tensor& x : in) {
    move_strided(pool, x, out[0], Walk(x.layout.shape, {&x.layout, &target}));
    target.offset += x.layout.shape[dim] * target.strides[dim];
  }
}

void pad_constant(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const std::vector<int64_t>& lo = attrs.list("lo");
  const Layout& x = in[0].layout;
  const Shape& shape = out[0].layout.shape;
  const size_t bytes = size_of(in[0].dtype), rank = shape.size();
  if (lo.size() != rank) fail(ErrorKind::invalid, "[pad] {} values of lo for {} dims", lo.size(), rank);
  if (element_count(shape) == 0) return;
  alignas(8) std::byte value[8];
  encode(attrs, in[0].dtype, value);
  if (rank == 0) return copy(pool, in, out, attrs);
  const int64_t width = shape.back(), stride = x.strides.back();
  const auto fill_row = [&](int64_t row, int64_t begin, int64_t end) {  // columns [begin, end)
    std::byte* to = at(out[0].data, row * width, bytes);
    const auto fill = [&](int64_t from, int64_t until) {
      copy_run(bytes, value, 0, at(to, from, bytes), 1, until - from);
    };
    int64_t from = x.offset, first = begin, last = begin;  // what the input covers
    bool inside = true;
    for (size_t d = rank - 1; d-- > 0; row /= shape[d]) {
      const int64_t index = row % shape[d] - lo[d];
      inside = inside && index >= 0 && index < x.shape[d];
      from += index * x.strides[d];
    }
    if (inside) {
      first = std::clamp(lo.back(), begin, end);
      last = std::clamp(lo.back() + x.shape.back(), first, end);
    }
    fill(begin, first);
    if (first < last) {
      const std::byte* source = at(in[0].data, from + (first - lo.back()) * stride, bytes);
      copy_run(bytes, source, stride, at(to, first, bytes), 1, last - first);
    }
    fill(last, end);
  };
  parallel(pool, element_count(shape), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin / width; row * width < end; ++row)
      fill_row(row, std::max(begin - row * width, int64_t{0}), std::min(end - row * width, width));
  });
}

void tril(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  check_matrix("tril", in[0].layout.shape);
  keep_band(pool, in[0], out[0], [diagonal = diagonal_of(attrs)](int64_t i, int64_t columns) {
    return std::pair(int64_t{0}, std::clamp(i + diagonal + 1, int64_t{0}, columns));
  });
}

void triu(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  check_matrix("triu", in[0].layout.shape);
  keep_band(pool, in[0], out[0], [diagonal = diagonal_of(attrs)](int64_t i, int64_t columns) {
    return std::pair(std::clamp(i + diagonal, int64_t{0}, columns), columns);
  });
}

}  // namespace weft::cpu
