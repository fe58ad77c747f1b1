#include "array/index_layout.h"
#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "base/error.h"

// index_select and index_add are gather and scatter whose indices have stride 0 in every dim but one: a run
// then has one index, and moves as a block.

namespace weft::cpu {
namespace {

using Tensors = std::span<const Tensor>;

/// Calls body(element) with an unsigned type of that many bytes.
template <typename Body>
void with_bytes(size_t bytes, const Body& body) {
  if (bytes == 1) return body(uint8_t{});
  if (bytes == 2) return body(uint16_t{});
  if (bytes == 4) return body(uint32_t{});
  body(uint64_t{});
}

/// The dim that indices choose from.
struct Chosen {
  const char* op;
  size_t dim;
  int64_t size, stride;

  void check(const int64_t* indices, int64_t count) const {
    bool outside = false;  // without a branch per index
    for (int64_t i = 0; i < count; ++i)
      outside |= static_cast<uint64_t>(indices[i]) >= static_cast<uint64_t>(size);
    for (int64_t i = 0; outside && i < count; ++i)
      if (indices[i] < 0 || indices[i] >= size)
        fail(ErrorKind::invalid, "[{}] index {} is outside of dim {} of size {}", op, indices[i], dim, size);
  }
};

Chosen choose(const char* op, const Layout& layout, int64_t dim) {
  const size_t d = dim_of(op, dim, layout.shape.size());
  if (layout.shape.empty()) return {op, d, 1, 0};
  return {op, d, layout.shape[d], layout.strides[d]};
}

Tensor spread(const Tensor& indices, const Shape& shape, size_t dim) {
  return {indices.data, indices.dtype, weft::spread(indices.layout, shape, dim)};
}

void gather_from(ThreadPool& pool, const Chosen& chosen, const Tensor& x, const Tensor& indices,
                 const Tensor& out) {
  const size_t bytes = size_of(x.dtype);
  const Layout base = pinned(x.layout, chosen.dim);
  const Walk walk(out.layout.shape, {&indices.layout, &base});
  const Walk::Offsets strides = walk.inner().strides;
  pool.for_each(static_cast<size_t>(walk.count()), kGrain, [&](size_t first, size_t end) {
    int64_t scratch[kTile];
    const auto run = [&](int64_t position, const Walk::Offsets& at, int64_t count) {
      if (strides[0] == 0) {
        const int64_t* index = view_run(indices, at[0], 0, 1, scratch);
        chosen.check(index, 1);
        const int64_t from = at[1] + *index * chosen.stride;
        const auto size = static_cast<int64_t>(bytes);
        return copy_run(bytes, x.data + from * size, strides[1], out.data + position * size, 1, count);
      }
      for (int64_t i = 0; i < count; i += kTile) {
        const int64_t n = std::min(kTile, count - i);
        const int64_t* index = view_run(indices, at[0] + i * strides[0], strides[0], n, scratch);
        chosen.check(index, n);
        with_bytes(bytes, [&]<typename U>(U) {
          const U* from = x.as<const U>() + at[1] + i * strides[1];
          U* to = out.as<U>() + position + i;
          for (int64_t k = 0; k < n; ++k) to[k] = from[k * strides[1] + index[k] * chosen.stride];
        });
      }
    };
    walk.runs(static_cast<int64_t>(first), static_cast<int64_t>(end), run);
  });
}

/// Calls body(walk) for parts of the elements of `shape` that may run side by side: no two parts write to one
/// place, and each part keeps the order along `dim`. Operands: indices, src, out with stride 0 along `dim`.
template <typename Body>
void scatter_parts(ThreadPool& pool, const Shape& shape, size_t dim, const Walk::Offsets& start,
                   const std::vector<Walk::Offsets>& strides, const Body& body) {
  // The largest dim other than `dim` is cut.
  size_t cut = shape.size();
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != dim && (cut == shape.size() || shape[d] > shape[cut])) cut = d;
  const auto part = [&](int64_t begin, int64_t end) {
    Walk walk;
    walk.start = start;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == cut)
        for (size_t k = 0; k < Walk::kOperands; ++k) walk.start[k] += begin * strides[d][k];
      walk.add(d == cut ? end - begin : shape[d], strides[d]);
    }
    body(walk);
  };
  if (cut == shape.size()) return part(0, 0);
  const int64_t rest = element_count(shape) / shape[cut];
  // Cutting the last dim: not below the 64 elements of a few cache lines.
  const int64_t grain = std::max<int64_t>(cut + 1 == shape.size() ? 64 : 1, kGrain / rest);
  pool.for_each(static_cast<size_t>(shape[cut]), static_cast<size_t>(grain), [&](size_t begin, size_t end) {
    part(static_cast<int64_t>(begin), static_cast<int64_t>(end));
  });
}

/// Writes src to the places that the indices name: apply(place, src offset, src stride, count), where
/// place(k) is the element of the output that the k-th of a tile goes to.
template <typename Apply>
void scatter_to(ThreadPool& pool, const Chosen& chosen, const Tensor& indices, const Tensor& src,
                const Layout& out, const Apply& apply) {
  const Shape& shape = indices.layout.shape;
  if (element_count(shape) == 0) return;
  std::vector<Walk::Offsets> strides;
  for (size_t d = 0; d < shape.size(); ++d)
    strides.push_back(
        {indices.layout.strides[d], src.layout.strides[d], d == chosen.dim ? 0 : out.strides[d]});
  const Walk::Offsets start = {indices.layout.offset, src.layout.offset, 0};
  scatter_parts(pool, shape, chosen.dim, start, strides, [&](const Walk& walk) {
    const Walk::Offsets inner = walk.inner().strides;
    int64_t scratch[kTile];
    walk.runs(0, walk.count(), [&](int64_t, const Walk::Offsets& at, int64_t count) {
      for (int64_t i = 0; i < count; i += kTile) {
        const int64_t n = std::min(kTile, count - i), different = inner[0] == 0 ? 1 : n;
        const int64_t* index = view_run(indices, at[0] + i * inner[0], inner[0], different, scratch);
        chosen.check(index, different);
        const int64_t base = at[2] + i * inner[2], from = at[1] + i * inner[1];
        if (inner[0] != 0) {
          apply([&](int64_t k) { return base + k * inner[2] + index[k] * chosen.stride; }, from, inner[1], n);
        } else if (inner[2] == 1) {  // a block: this one vectorises
          const int64_t first = base + *index * chosen.stride;
          apply([first](int64_t k) { return first + k; }, from, inner[1], n);
        } else {
          apply([&](int64_t k) { return base + k * inner[2] + *index * chosen.stride; }, from, inner[1], n);
        }
      }
    });
  });
}

void scatter_set(ThreadPool& pool, const Chosen& chosen, const Tensor& indices, const Tensor& src,
                 const Tensor& out) {
  with_bytes(size_of(out.dtype), [&]<typename U>(U) {
    U* to = out.as<U>();
    const U* from = src.as<const U>();
    scatter_to(pool, chosen, indices, src, out.layout,
               [&](const auto& place, int64_t offset, int64_t stride, int64_t count) {
                 for (int64_t k = 0; k < count; ++k) to[place(k)] = from[offset + k * stride];
               });
  });
}

/// T as in load_run; U is how sums are kept: float, or the unsigned integer of out's size.
template <typename T, typename U>
void scatter_add_as(ThreadPool& pool, const Chosen& chosen, const Tensor& indices, const Tensor& src,
                    const Layout& layout, U* to) {
  scatter_to(pool, chosen, indices, src, layout,
             [&](const auto& place, int64_t offset, int64_t stride, int64_t count) {
               T scratch[kTile];
               const T* values = view_run(src, offset, stride, count, scratch);
               for (int64_t k = 0; k < count; ++k) {
                 U& sum = to[place(k)];
                 sum = static_cast<U>(sum + static_cast<U>(values[k]));
               }
             });
}

void scatter_add(ThreadPool& pool, const Chosen& chosen, const Tensor& indices, const Tensor& src,
                 const Tensor& out) {
  if (out.dtype == DType::boolean) fail(ErrorKind::unsupported, "[{}] bools cannot be added", chosen.op);
  if (out.dtype == DType::f32)
    return scatter_add_as<float>(pool, chosen, indices, src, out.layout, out.as<float>());
  if (out.dtype == DType::i64)
    return scatter_add_as<int64_t>(pool, chosen, indices, src, out.layout, out.as<uint64_t>());
  if (size_of(out.dtype) == 4)
    return scatter_add_as<int64_t>(pool, chosen, indices, src, out.layout, out.as<uint32_t>());
  if (size_of(out.dtype) == 1)
    return scatter_add_as<int64_t>(pool, chosen, indices, src, out.layout, out.as<uint8_t>());
  // f16 and bf16 are rounded once, at the end.
  const int64_t count = element_count(out.layout.shape);
  std::vector<float> sums(static_cast<size_t>(count));
  load_run(out, 0, 1, count, sums.data());
  scatter_add_as<float>(pool, chosen, indices, src, out.layout, sums.data());
  store_run(sums.data(), count, out, 0, 1);
}

/// How many elements of the sorted row come before v. NaN is the largest value, as sort has it.
template <typename T>
int64_t insertion_point(const T* sorted, int64_t size, T v, bool right) {
  const auto less = [](T a, T b) { return a < b || (a == a && b != b); };
  const T* end = sorted + size;
  return (right ? std::upper_bound(sorted, end, v, less) : std::lower_bound(sorted, end, v, less)) - sorted;
}

template <typename T>
void search(ThreadPool& pool, const Tensor& sorted, const Tensor& values, const Tensor& out, bool right) {
  const Shape& shape = sorted.layout.shape;
  const int64_t size = shape.back(), stride = sorted.layout.strides.back();
  const Walk lines(Shape(shape.begin(), shape.end() - 1), {&sorted.layout});
  const Walk walk(values.layout.shape, {&values.layout});
  if (lines.count() == 0 || walk.count() == 0) return;
  const int64_t per_line = walk.count() / lines.count(), side = walk.inner().strides[0];
  const auto search_line = [&](int64_t line, const T* row) {
    pool.for_each(static_cast<size_t>(per_line), kGrain / 16, [&](size_t begin, size_t end) {
      T scratch[kTile];
      int64_t found[kTile];
      const int64_t base = line * per_line;
      walk.runs(base + static_cast<int64_t>(begin), base + static_cast<int64_t>(end),
                [&](int64_t position, const Walk::Offsets& at, int64_t count) {
                  for (int64_t i = 0; i < count; i += kTile) {
                    const int64_t n = std::min(kTile, count - i);
                    const T* v = view_run(values, at[0] + i * side, side, n, scratch);
                    for (int64_t k = 0; k < n; ++k) found[k] = insertion_point(row, size, v[k], right);
                    store_run(found, n, out, position + i, 1);
                  }
                });
    });
  };
  // With several rows the loop over values runs inline.
  pool.for_each(static_cast<size_t>(lines.count()), 1, [&](size_t begin, size_t end) {
    std::vector<T> scratch(static_cast<size_t>(size));
    lines.runs(static_cast<int64_t>(begin), static_cast<int64_t>(end),
               [&](int64_t position, const Walk::Offsets& at, int64_t count) {
                 for (int64_t j = 0; j < count; ++j) {
                   const int64_t offset = at[0] + j * lines.inner().strides[0];
                   search_line(position + j, view_run(sorted, offset, stride, size, scratch.data()));
                 }
               });
  });
}

}  // namespace

void gather(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  gather_from(pool, choose("gather", in[0].layout, attrs.integer("dim")), in[0], in[1], out[0]);
}

void index_select(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const Chosen chosen = choose("index_select", in[0].layout, attrs.integer("dim"));
  gather_from(pool, chosen, in[0], spread(in[1], out[0].layout.shape, chosen.dim), out[0]);
}

void scatter(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const std::string& mode = attrs.text("mode");
  if (mode != "set" && mode != "add")
    fail(ErrorKind::invalid, "[scatter] mode '{}' is not 'set' or 'add'", mode);
  const Chosen chosen =
      choose(mode == "set" ? "scatter" : "scatter_add", out[0].layout, attrs.integer("dim"));
  copy(pool, in.first(1), out, attrs);
  (mode == "set" ? scatter_set : scatter_add)(pool, chosen, in[1], in[2], out[0]);
}

void index_add(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const Chosen chosen = choose("index_add", out[0].layout, attrs.integer("dim"));
  copy(pool, in.first(1), out, attrs);
  scatter_add(pool, chosen, spread(in[1], in[2].layout.shape, chosen.dim), in[2], out[0]);
}

void put_rows(ThreadPool& pool, Tensors inputs, Tensors outputs, const Attrs&) {
  const Tensor &out = outputs[0], indices = spread(inputs[1], inputs[2].layout.shape, 0), &src = inputs[2];
  const Chosen chosen = choose("put_rows", out.layout, 0);
  const auto bytes = static_cast<int64_t>(size_of(out.dtype));
  const Walk walk(src.layout.shape, {&indices.layout, &src.layout});
  const int64_t width = element_count(src.layout.shape) / std::max<int64_t>(src.layout.shape[0], 1);
  pool.for_each(static_cast<size_t>(walk.count()), kGrain, [&](size_t first, size_t end) {
    walk.runs(
        static_cast<int64_t>(first), static_cast<int64_t>(end),
        [&](int64_t position, const Walk::Offsets& at, int64_t count) {
          for (int64_t done = 0; done < count;) {  // a run may hold several rows
            const int64_t column = (position + done) % width, n = std::min(count - done, width - column);
            int64_t scratch[1];
            const int64_t* row = view_run(indices, at[0] + done * walk.inner().strides[0], 0, 1, scratch);
            chosen.check(row, 1);
            copy_run(static_cast<size_t>(bytes), src.data + (at[1] + done * walk.inner().strides[1]) * bytes,
                     walk.inner().strides[1], out.data + (*row * width + column) * bytes, 1, n);
            done += n;
          }
        });
  });
}

void searchsorted(ThreadPool& pool, Tensors in, Tensors out, const Attrs& attrs) {
  const bool right = attrs.has("right") && attrs.flag("right");
  if (is_float(in[0].dtype))
    search<float>(pool, in[0], in[1], out[0], right);
  else
    search<int64_t>(pool, in[0], in[1], out[0], right);
}

}  // namespace weft::cpu
