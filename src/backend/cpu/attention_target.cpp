// The vector code of attention: a row of scores, and few queries over rows of a cache, for each target.

// Baseline, AVX2, AVX-512 and NEON, as in gemm_target.cpp.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_target.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/attention_target.h"
#include "backend/cpu/floats.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

/// step(d, i) over [0, count): whole vectors, then single lanes.
template <typename Step>
HWY_INLINE void for_lanes(int64_t count, const Step& step) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(Floats(), i);
  for (; i < count; ++i) step(hn::CappedTag<float, 1>(), i);
}

template <class D>
HWY_INLINE hn::Vec<D> capped(D d, hn::Vec<D> x, float softcap) {
  return hn::Mul(hn::Set(d, softcap), hn::Tanh(d, hn::Mul(x, hn::Set(d, 1 / softcap))));
}

/// Highway's Exp makes NaN 0.
template <class D>
HWY_INLINE hn::Vec<D> exp_of(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

float weigh(float* HWY_RESTRICT scores, const float* HWY_RESTRICT bias, int64_t count, float softcap,
            RowSum& sum) {
  const Floats d;
  auto top = hn::Set(d, sum.top);
  float last_top = sum.top;  // of the single lanes at the end
  for_lanes(count, [&](auto one, int64_t i) HWY_ATTR {
    auto x = hn::LoadU(one, scores + i);
    if (softcap != 0) x = capped(one, x, softcap);
    if (bias) x = hn::Add(x, hn::LoadU(one, bias + i));
    if (bias || softcap != 0) hn::StoreU(x, one, scores + i);
    if constexpr (hn::MaxLanes(decltype(one)()) > 1)
      top = hn::Max(top, x);
    else
      last_top = std::max(last_top, hn::GetLane(x));
  });
  const float highest = std::max(hn::GetLane(hn::MaxOfLanes(d, top)), last_top);
  if (highest == -std::numeric_limits<float>::infinity()) {  // nothing visible so far
    std::fill_n(scores, count, 0.0f);
    return 0;
  }
  auto total = hn::Zero(d);
  float last_total = 0;
  for_lanes(count, [&](auto one, int64_t i) HWY_ATTR {
    const auto e = exp_of(one, hn::Sub(hn::LoadU(one, scores + i), hn::Set(one, highest)));
    hn::StoreU(e, one, scores + i);
    if constexpr (hn::MaxLanes(decltype(one)()) > 1)
      total = hn::Add(total, e);
    else
      last_total += hn::GetLane(e);
  });
  const float factor = std::exp(sum.top - highest);
  sum.top = highest;
  sum.total = sum.total * factor + (hn::GetLane(hn::SumOfLanes(d, total)) + last_total);
  return factor;
}

void backward(float* HWY_RESTRICT scores, float* HWY_RESTRICT products, const float* HWY_RESTRICT bias,
              int64_t count, float softcap, float top, float share, float delta) {
  for_lanes(count, [&](auto d, int64_t i) HWY_ATTR {
    auto x = hn::LoadU(d, scores + i);
    auto slope = hn::Set(d, 1.0f);  // of the cap
    if (softcap != 0) {
      x = capped(d, x, softcap);
      const auto t = hn::Mul(x, hn::Set(d, 1 / softcap));
      slope = hn::NegMulAdd(t, t, slope);
    }
    if (bias) x = hn::Add(x, hn::LoadU(d, bias + i));
    const auto weight = hn::Mul(exp_of(d, hn::Sub(x, hn::Set(d, top))), hn::Set(d, share));
    const auto product = hn::Sub(hn::LoadU(d, products + i), hn::Set(d, delta));
    hn::StoreU(weight, d, scores + i);
    hn::StoreU(hn::Mul(hn::Mul(weight, product), slope), d, products + i);
  });
}

void scale(float* x, int64_t count, float factor) {
  for_lanes(count, [&](auto d, int64_t i)
                       HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i); });
}

void add(float* to, const float* from, int64_t count, float factor) {
  for_lanes(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  });
}

// ---- rows of a cache

// Queries and vectors of columns of a tile: its sums, a row's vectors and a weight fit the registers.
constexpr int64_t kQueries = 4, kColumns = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int64_t kKeys = 4;  // of a tile of scores

#if HWY_TARGET != HWY_SCALAR
/// Adds up the parts of 16 bytes.
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> x, float* to) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), to);
  }
}
#endif

template <typename T>
HWY_INLINE float dot(int64_t count, const float* a, const T* b) {
  const Floats d;
  Vector sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, a + i), load(d, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += a[i] * load_one(b + i);
  return total;
}

/// Adds up the lanes of four vectors; the sums lie side by side.
HWY_INLINE void store_sums(const Vector (&x)[kKeys], float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t j = 0; j < kKeys; ++j) to[j] = hn::GetLane(x[j]);
#else
  const Floats d;
  const hn::Repartition<uint64_t, Floats> pairs;
  const auto both = [&](Vector a, Vector b) HWY_ATTR {  // in each 16 bytes: a02, b02, a13, b13
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto ab = both(x[0], x[1]), ce = both(x[2], x[3]);
  store_blocks(d,
               hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                       hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce))),
               to);
#endif
}

/// Where the rows of keys are, as elements of their type.
template <typename T>
class Rows {
 public:
  Rows(const HeadRows& of, const T* data)
      : places_(of.places), count_(of.count), stride_(of.rows.lane_stride), data_(data) {}

  HWY_INLINE const T* operator[](int64_t key) const {
    return data_ + (places_ ? places_[key] : key) * stride_;
  }
  /// Asks for columns of a key, if there is one: they lie apart, and the processor's own reading ahead stops
  /// at their ends. Into the L2 cache, which is twice as fast as into L1.
  HWY_INLINE void fetch(int64_t key, int64_t column, int64_t columns) const {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
    if (key >= count_) return;
    const T* row = (*this)[key] + column;
    for (int64_t c = 0; c < columns; c += kLine) __builtin_prefetch(row + c, 0, 2);
  }

 private:
  const int32_t* places_;
  int64_t count_, stride_;
  const T* data_;
};

/// Rows that all heads go through before the next ones, which are fetched meanwhile: memory is read nearly in
/// the order in which it lies. 8 KiB of them; 4 and 32 KiB are slower by a tenth and more.
template <typename T>
HWY_INLINE int64_t rows_at_once(const HeadRows& of) {
  constexpr int64_t kBytes = 8 << 10;
  const int64_t fitting = kBytes / (of.heads * of.columns * static_cast<int64_t>(sizeof(T)));
  return std::clamp<int64_t>(fitting / kKeys * kKeys, 2 * kKeys, 64);
}

/// Scores of kCount queries with 4 keys.
template <int64_t kCount, typename T>
HWY_INLINE void score_tile(int64_t columns, const float* q, const T* const (&keys)[kKeys], float* scores,
                           int64_t stride) {
  const Floats d;
  Vector sums[kCount][kKeys];
  for (int64_t i = 0; i < kCount; ++i)
    for (int64_t j = 0; j < kKeys; ++j) sums[i][j] = hn::Zero(d);
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Vector key[kKeys];
    for (int64_t j = 0; j < kKeys; ++j) key[j] = load(d, keys[j] + c);
    for (int64_t i = 0; i < kCount; ++i) {
      const Vector query = hn::LoadU(d, q + i * columns + c);
      for (int64_t j = 0; j < kKeys; ++j) sums[i][j] = hn::MulAdd(query, key[j], sums[i][j]);
    }
  }
  for (int64_t i = 0; i < kCount; ++i) {
    store_sums(sums[i], scores + i * stride);
    for (int64_t rest = c; rest < columns; ++rest)
      for (int64_t j = 0; j < kKeys; ++j)
        scores[i * stride + j] += q[i * columns + rest] * load_one(keys[j] + rest);
  }
}

/// Sums of kCount queries over kVectors vectors of columns, from `column` on; `count` keys from `first` on.
template <int64_t kCount, int64_t kVectors, class D, typename T>
HWY_INLINE void gather_tile(D d, const Rows<T>& rows, int64_t column, int64_t first, int64_t count,
                            const float* weights, int64_t stride, float* sums, int64_t columns) {
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(d));
  hn::Vec<D> total[kCount][kVectors];
  for (int64_t i = 0; i < kCount; ++i)
    for (int64_t v = 0; v < kVectors; ++v) total[i][v] = hn::LoadU(d, sums + i * columns + v * lanes);
  for (int64_t j = 0; j < count; ++j) {
    const T* row = rows[first + j] + column;
    hn::Vec<D> value[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) value[v] = load(d, row + v * lanes);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto weight = hn::Set(d, weights[i * stride + j]);
      for (int64_t v = 0; v < kVectors; ++v) total[i][v] = hn::MulAdd(weight, value[v], total[i][v]);
    }
  }
  for (int64_t i = 0; i < kCount; ++i)
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(total[i][v], d, sums + i * columns + v * lanes);
}

/// body<n>(first) for queries in tiles of up to four.
template <typename Body>
HWY_INLINE void by_queries(int64_t queries, const Body& body) {
  int64_t i = 0;
  for (; i + kQueries <= queries; i += kQueries) body.template operator()<kQueries>(i);
  switch (queries - i) {
    case 3:
      return body.template operator()<3>(i);
    case 2:
      return body.template operator()<2>(i);
    case 1:
      return body.template operator()<1>(i);
    default:
      return;
  }
}

void score(const HeadRows& of, int64_t begin, int64_t end, const float* q, float* scores, int64_t stride) {
  const int64_t columns = of.columns;
  with_type(of.rows, [&]<typename T>(const T* data) HWY_ATTR {
    const Rows<T> rows(of, data);
    const int64_t step = rows_at_once<T>(of);
    for (int64_t first = begin; first < end; first += step)
      for (int64_t head = 0; head < of.heads; ++head)
        by_queries(of.queries, [&]<int64_t kCount>(int64_t query) HWY_ATTR {
          const int64_t row = head * of.queries + query, last = std::min(first + step, end);
          const float* left = q + row * columns;
          float* to = scores + row * stride;
          int64_t j = first;
          for (; j + kKeys <= last; j += kKeys) {
            const T* keys[kKeys];
            for (int64_t k = 0; k < kKeys; ++k) {
              keys[k] = rows[j + k] + head * columns;
              if (query == 0) rows.fetch(j + k + step, head * columns, columns);
            }
            score_tile<kCount>(columns, left, keys, to + j - begin, stride);
          }
          for (; j < last; ++j)
            for (int64_t i = 0; i < kCount; ++i)
              to[i * stride + j - begin] = dot(columns, left + i * columns, rows[j] + head * columns);
        });
  });
}

void gather(const HeadRows& of, int64_t begin, int64_t end, const float* weights, int64_t stride,
            float* sums) {
  const int64_t columns = of.columns;
  with_type(of.rows, [&]<typename T>(const T* data) HWY_ATTR {
    const Rows<T> rows(of, data);
    const int64_t step = rows_at_once<T>(of);
    for (int64_t first = begin; first < end; first += step)
      for (int64_t head = 0; head < of.heads; ++head) {
        const int64_t last = std::min(first + step, end);
        for (int64_t j = first; j < last; ++j) rows.fetch(j + step, head * columns, columns);
        by_queries(of.queries, [&]<int64_t kCount>(int64_t query) HWY_ATTR {
          const int64_t row = head * of.queries + query;
          const auto tile = [&]<int64_t kVectors>(auto d, int64_t c) HWY_ATTR {
            gather_tile<kCount, kVectors>(d, rows, head * columns + c, first, last - first,
                                          weights + row * stride + first - begin, stride,
                                          sums + row * columns + c, columns);
          };
          int64_t c = 0;
          for (; c + kColumns * kLanes <= columns; c += kColumns * kLanes)
            tile.template operator()<kColumns>(Floats(), c);
          for (; c + kLanes <= columns; c += kLanes) tile.template operator()<1>(Floats(), c);
          for (; c < columns; ++c) tile.template operator()<1>(hn::CappedTag<float, 1>(), c);
        });
      }
  });
}

const AttentionTarget* target() {
  static constexpr AttentionTarget kTarget{weigh, backward, scale, add, score, gather};
  return &kTarget;
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(target);

const AttentionTarget& attention_target() {
  return *HWY_DYNAMIC_DISPATCH(target)();
}

void join_pieces(int64_t pieces, int64_t rows, int64_t columns, float* sums, RowSum* weights) {
  const AttentionTarget& simd = attention_target();
  for (int64_t r = 0; r < rows && pieces > 1; ++r) {
    RowSum joined;
    for (int64_t p = 0; p < pieces; ++p) joined.top = std::max(joined.top, weights[p * rows + r].top);
    for (int64_t p = 0; p < pieces; ++p) {
      const RowSum& part = weights[p * rows + r];
      const float factor = part.total == 0 ? 0 : std::exp(part.top - joined.top);
      joined.total += part.total * factor;
      float* to = sums + r * columns;
      if (p == 0)
        simd.scale(to, columns, factor);
      else
        simd.add(to, sums + (p * rows + r) * columns, columns, factor);
    }
    weights[r] = joined;
  }
}

}  // namespace weft::cpu
#endif
