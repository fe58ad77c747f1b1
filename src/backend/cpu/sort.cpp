#include <bit>
#include <compare>

#include "backend/cpu/iterate.h"
#include "backend/cpu/primitives.h"
#include "base/error.h"

// Every element becomes an unsigned key in the order wanted, with its index behind it: no two items are
// equal, so any algorithm is stable and every split of the work gives the same result. Keys of 32 bits and
// the index share a word.

namespace weft::cpu {
namespace {

using Narrow = uint64_t;  // key << 32 | index

struct Broad {  // for i64
  uint64_t key;
  uint32_t index;
  auto operator<=>(const Broad&) const = default;
};

uint32_t index_of(Narrow item) {
  return static_cast<uint32_t>(item);
}
uint32_t index_of(const Broad& item) {
  return item.index;
}

uint32_t key_of(float v) {
  if (v != v) return UINT32_MAX;
  const uint32_t bits = std::bit_cast<uint32_t>(v + 0.0f);  // -0 and 0 are equal
  return bits >> 31 ? ~bits : bits | 1u << 31;
}

template <typename T>
void make_items(const Tensor& x, int64_t offset, int64_t stride, bool descending,
                std::vector<Narrow>& items) {
  T scratch[kTile];
  const uint32_t flip = descending ? UINT32_MAX : 0;
  const uint32_t sign = x.dtype == DType::i32 || x.dtype == DType::i8 ? 1u << 31 : 0;
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < size; i += kTile) {
    const int64_t n = std::min(kTile, size - i);
    const T* values = view_run(x, offset + i * stride, stride, n, scratch);
    for (int64_t k = 0; k < n; ++k) {
      uint32_t key;
      if constexpr (std::is_same_v<T, float>)
        key = key_of(values[k]);
      else
        key = static_cast<uint32_t>(values[k]) ^ sign;
      items[static_cast<size_t>(i + k)] =
          static_cast<uint64_t>(key ^ flip) << 32 | static_cast<uint32_t>(i + k);
    }
  }
}

void make_items(const Tensor& x, int64_t offset, int64_t stride, bool descending, std::vector<Broad>& items) {
  const uint64_t flip = (descending ? UINT64_MAX : 0) ^ 1ull << 63;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t value = x.as<const int64_t>()[offset + static_cast<int64_t>(i) * stride];
    items[i] = {static_cast<uint64_t>(value) ^ flip, static_cast<uint32_t>(i)};
  }
}

/// Least significant digit first over the key's four bytes; digits that all items share are skipped. Items
/// come in the order of their indices, which the passes keep.
void radix_sort(std::span<Narrow> items, std::span<Narrow> scratch) {
  uint32_t counts[4][256] = {};
  for (Narrow item : items)
    for (int d = 0; d < 4; ++d) ++counts[d][item >> (32 + 8 * d) & 255];
  Narrow *from = items.data(), *to = scratch.data();
  for (int d = 0; d < 4; ++d) {
    const int shift = 32 + 8 * d;
    if (counts[d][items[0] >> shift & 255] == items.size()) continue;
    uint32_t next = 0;
    for (uint32_t& count : counts[d]) next += std::exchange(count, next);
    for (size_t i = 0; i < items.size(); ++i) to[counts[d][from[i] >> shift & 255]++] = from[i];
    std::swap(from, to);
  }
  if (from != items.data()) std::copy_n(from, items.size(), items.data());
}

void sort_items(std::span<Narrow> items, std::span<Narrow> scratch) {
  if (items.size() < 512)  // below, filling the histograms costs more than it saves
    std::sort(items.begin(), items.end());
  else
    radix_sort(items, scratch);
}

void sort_items(std::span<Broad> items, std::span<Broad>) {
  std::sort(items.begin(), items.end());
}

/// How many of the first `taken` items of the merged a and b come from a.
template <typename Item>
size_t split(std::span<const Item> a, std::span<const Item> b, size_t taken) {
  size_t low = taken > b.size() ? taken - b.size() : 0, high = std::min(taken, a.size());
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (a[middle] < b[taken - middle - 1])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// One long line: pieces are sorted side by side, then merged two by two; each merge is cut as well.
template <typename Item>
void sort_parallel(ThreadPool& pool, std::vector<Item>& items, std::vector<Item>& scratch) {
  const size_t size = items.size(), threads = static_cast<size_t>(pool.threads());
  size_t run = (size + std::bit_ceil(threads) - 1) / std::bit_ceil(threads);
  pool.for_each(size, run, [&](size_t begin, size_t end) {
    sort_items(std::span(items).subspan(begin, end - begin), std::span(scratch).subspan(begin, end - begin));
  });
  for (; run < size; run *= 2) {
    const size_t pairs = (size + 2 * run - 1) / (2 * run), parts = (2 * threads + pairs - 1) / pairs;
    pool.for_each(pairs * parts, 1, [&](size_t task, size_t) {
      const size_t begin = task / parts * 2 * run, part = task % parts;
      const std::span<const Item> both(items.data() + begin, std::min(2 * run, size - begin));
      const auto a = both.first(std::min(run, both.size())), b = both.subspan(a.size());
      const size_t from = both.size() * part / parts, to = both.size() * (part + 1) / parts;
      const size_t from_a = split(a, b, from), to_a = split(a, b, to);
      const auto cut_a = a.subspan(from_a, to_a - from_a),
                 cut_b = b.subspan(from - from_a, to - to_a - (from - from_a));
      std::merge(cut_a.begin(), cut_a.end(), cut_b.begin(), cut_b.end(),
                 scratch.begin() + static_cast<int64_t>(begin + from));
    });
    items.swap(scratch);
  }
}

/// out[i] = x[items[i].index], elements of `bytes` bytes.
template <typename Item>
void pick(size_t bytes, const std::vector<Item>& items, const Tensor& x, int64_t at, int64_t stride,
          const Tensor& out, int64_t out_at, int64_t out_stride) {
  const auto as = [&]<typename U>(U) {
    const U* from = x.as<const U>() + at;
    U* to = out.as<U>() + out_at;
    for (size_t i = 0; i < items.size(); ++i)
      to[static_cast<int64_t>(i) * out_stride] = from[static_cast<int64_t>(index_of(items[i])) * stride];
  };
  switch (bytes) {
    case 1:
      return as(uint8_t{});
    case 2:
      return as(uint16_t{});
    case 4:
      return as(uint32_t{});
    default:
      return as(uint64_t{});
  }
}

template <typename Item>
void sort_lines(ThreadPool& pool, const Lines& lines, const Tensor& x, const Tensor& values,
                const Tensor& indices, bool descending) {
  const auto size = static_cast<size_t>(lines.size);
  const bool parallel = lines.rest.count() < pool.threads() && lines.size >= 4 * kGrain;
  const Walk::Offsets side = lines.rest.inner().strides;
  const auto sort_some = [&](size_t begin, size_t end) {
    std::vector<Item> items(size), scratch(size);
    const auto one = [&](int64_t at, int64_t out_at) {
      if constexpr (std::is_same_v<Item, Broad>)
        make_items(x, at, lines.in_stride, descending, items);
      else if (is_float(x.dtype))
        make_items<float>(x, at, lines.in_stride, descending, items);
      else
        make_items<int64_t>(x, at, lines.in_stride, descending, items);
      if (parallel)
        sort_parallel(pool, items, scratch);
      else
        sort_items(std::span(items), std::span(scratch));
      pick(size_of(x.dtype), items, x, at, lines.in_stride, values, out_at, lines.out_stride);
      int32_t* places = indices.as<int32_t>() + out_at;
      for (size_t i = 0; i < size; ++i)
        places[static_cast<int64_t>(i) * lines.out_stride] = static_cast<int32_t>(index_of(items[i]));
    };
    lines.rest.runs(static_cast<int64_t>(begin), static_cast<int64_t>(end),
                    [&](int64_t, const Walk::Offsets& at, int64_t count) {
                      for (int64_t j = 0; j < count; ++j) one(at[0] + j * side[0], at[1] + j * side[1]);
                    });
  };
  const auto count = static_cast<size_t>(lines.rest.count());
  if (parallel)
    sort_some(0, count);
  else
    pool.for_each(count, static_cast<size_t>(std::max<int64_t>(kGrain / 8 / lines.size, 1)), sort_some);
}

}  // namespace

void sort(ThreadPool& pool, std::span<const Tensor> in, std::span<const Tensor> out, const Attrs& attrs) {
  const Lines lines = lines_along("sort", in[0].layout, out[0].layout, attrs.integer("dim"));
  const bool descending = attrs.has("descending") && attrs.flag("descending");
  if (lines.size == 0 || lines.rest.count() == 0) return;
  if (lines.size > INT32_MAX)
    fail(ErrorKind::unsupported, "[sort] a dim of {} has no i32 indices", lines.size);
  if (in[0].dtype == DType::i64)
    sort_lines<Broad>(pool, lines, in[0], out[0], out[1], descending);
  else
    sort_lines<Narrow>(pool, lines, in[0], out[0], out[1], descending);
}

}  // namespace weft::cpu
