#include <hwy/cache_control.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/processor.h"
#include "backend/cpu/stream.h"
#include "backend/cpu/transpose.h"
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

constexpr size_t kFetched = 2048;  // bytes of a run, from which on a processor follows by itself

/// memcpy, or stream.
using Put = void (*)(const void* from, void* to, size_t bytes);

void put_cached(const void* from, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

Put put_for(int64_t bytes) {
  return is_streamed(static_cast<uint64_t>(bytes)) ? stream : put_cached;
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
  // A task is a strip, and a long one, whose rows are read in long pieces. Threads take neighbours, so that
  // what they write lies side by side.
  constexpr int64_t kRows = 4096;
  const auto size = static_cast<int64_t>(bytes);
  const int64_t strip = strip_lines(bytes) * kLineBytes / size;
  const Walk::Dim rows = walk.dims()[dim], columns = walk.dims().back();
  Walk rest;
  rest.start = walk.start;
  for (size_t d = 0; d + 1 < walk.dims().size(); ++d)
    if (d != dim) rest.add(walk.dims()[d].size, walk.dims()[d].strides);
  const int64_t bands = (rows.size + kRows - 1) / kRows, bars = (columns.size + strip - 1) / strip;
  const int64_t area = std::min(kRows, rows.size) * std::min(strip, columns.size);
  const bool streamed =
      is_streamed(static_cast<uint64_t>(walk.count() * size)) && rows.strides[1] * size % kLineBytes == 0;
  std::atomic<int64_t> next = 0;
  parallel(pool, rest.count() * bands * bars, kGrain / area, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t task = next++;
      const int64_t place = task / (bands * bars), row = task / bars % bands * kRows,
                    column = task % bars * strip;
      rest.runs(place, place + 1, [&](int64_t, const Walk::Offsets& offsets, int64_t) {
        const std::byte* from = at(in.data, offsets[0] + row + column * columns.strides[0], bytes);
        std::byte* to = at(out.data, offsets[1] + row * rows.strides[1] + column, bytes);
        transpose_block(bytes, {.from = from,
                                .to = to,
                                .from_stride = columns.strides[0],
                                .to_stride = rows.strides[1],
                                .rows = std::min(kRows, rows.size - row),
                                .columns = std::min(strip, columns.size - column),
                                .is_streamed = streamed && reinterpret_cast<uintptr_t>(to) % kLineBytes == 0,
                                .follows_streams = follows_many_streams()});
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
      // Processors do not look ahead from run to run: the next one is fetched while one is put.
      std::span<const std::byte> run;
      std::byte* to = nullptr;
      walk.runs(begin, end, [&](int64_t, const Walk::Offsets& offsets, int64_t count) {
        const std::span next(at(in.data, offsets[0], bytes), static_cast<size_t>(count) * bytes);
        for (size_t i = 0; i < std::min<size_t>(next.size(), kFetched); i += kLineBytes)
          __builtin_prefetch(&next[i], 0, 2);
        put(run.data(), to, run.size());
        run = next;
        to = at(out.data, offsets[1], bytes);
      });
      put(run.data(), to, run.size());
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
