// The vector code of gemm: packing, tiles of c in registers, and thin products, for each target.

// Baseline, AVX2, AVX-512 and NEON; each target is another compilation of this file.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm_target.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/floats.h"
#include "backend/cpu/gemm_target.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

// 12 x 2 vectors of c, 2 of b and a broadcast fit 32 registers; 6 x 2 fit 16.
constexpr int64_t kTileVectors = 2, kTileColumns = kTileVectors * kLanes;
constexpr int64_t kTileRows = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 12 : 6;

// ---- packing

template <typename T>
HWY_INLINE void convert(const T* from, int64_t count, float* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    const Floats d;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(load(d, from + i), d, to + i);
    for (; i < count; ++i) to[i] = load_one(from + i);
  }
}

/// to[p * kWidth + lane] = from[lane * stride + p]
template <int64_t kWidth>
HWY_INLINE void transpose(const float* from, int64_t stride, int64_t lanes, int64_t depth, float* to) {
  int64_t lane = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  for (; lane + 4 <= lanes; lane += 4) {
    const float* row = from + lane * stride;
    float* out = to + lane;
    int64_t p = 0;
    for (; p + 4 <= depth; p += 4, out += 4 * kWidth) {
      const auto r0 = hn::LoadU(d, row + p), r1 = hn::LoadU(d, row + stride + p);
      const auto r2 = hn::LoadU(d, row + 2 * stride + p), r3 = hn::LoadU(d, row + 3 * stride + p);
      const auto low01 = hn::InterleaveLower(d, r0, r1), low23 = hn::InterleaveLower(d, r2, r3);
      const auto high01 = hn::InterleaveUpper(d, r0, r1), high23 = hn::InterleaveUpper(d, r2, r3);
      hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, out);
      hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, out + kWidth);
      hn::StoreU(hn::ConcatLowerLower(d, high23, high01), d, out + 2 * kWidth);
      hn::StoreU(hn::ConcatUpperUpper(d, high23, high01), d, out + 3 * kWidth);
    }
    for (; p < depth; ++p, out += kWidth)
      for (int64_t i = 0; i < 4; ++i) out[i] = row[i * stride + p];
  }
#endif
  for (; lane < lanes; ++lane)
    for (int64_t p = 0; p < depth; ++p) to[p * kWidth + lane] = from[lane * stride + p];
}

template <int64_t kWidth, typename T>
void pack_panel(const T* from, int64_t lane_stride, int64_t depth_stride, int64_t lanes, int64_t depth,
                float* to) {
  if (lanes < kWidth)
    for (int64_t p = 0; p < depth; ++p) std::fill(to + p * kWidth + lanes, to + (p + 1) * kWidth, 0.0f);
  if (lane_stride == 1) {
    // Two loops: a copy of constant size needs no call.
    if (lanes == kWidth)
      for (int64_t p = 0; p < depth; ++p) convert(from + p * depth_stride, kWidth, to + p * kWidth);
    else
      for (int64_t p = 0; p < depth; ++p) convert(from + p * depth_stride, lanes, to + p * kWidth);
  } else if (depth_stride == 1) {
    if constexpr (std::is_same_v<T, float>) {
      transpose<kWidth>(from, lane_stride, lanes, depth, to);
    } else {
      constexpr int64_t kPiece = 64;  // 8 KiB at most
      float piece[kWidth * kPiece];   // (lane, p)
      for (int64_t p = 0; p < depth; p += kPiece) {
        const int64_t count = std::min(kPiece, depth - p);
        for (int64_t lane = 0; lane < lanes; ++lane)
          convert(from + lane * lane_stride + p, count, piece + lane * kPiece);
        transpose<kWidth>(piece, kPiece, lanes, count, to + p * kWidth);
      }
    }
  } else {
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t lane = 0; lane < lanes; ++lane)
        to[p * kWidth + lane] = load_one(from + lane * lane_stride + p * depth_stride);
  }
}

template <int64_t kWidth>
void pack(const Strip& strip, int64_t lanes, int64_t depth, float* out) {
  with_type(strip, [&](const auto* from) {
    for (int64_t lane = 0; lane < lanes; lane += kWidth)
      pack_panel<kWidth>(from + lane * strip.lane_stride, strip.lane_stride, strip.depth_stride,
                         std::min(kWidth, lanes - lane), depth, out + lane * depth);
  });
}

void copy(const Strip& strip, int64_t lanes, int64_t depth, float* out, int64_t out_stride) {
  with_type(strip, [&](const auto* from) {
    for (int64_t lane = 0; lane < lanes; ++lane, from += strip.lane_stride, out += out_stride)
      if (strip.depth_stride == 1)
        convert(from, depth, out);
      else
        for (int64_t p = 0; p < depth; ++p) out[p] = load_one(from + p * strip.depth_stride);
  });
}

// ---- product of packed blocks

/// One tile of c in registers. a: panels of (depth, kTileRows) when packed, else rows that lie a_stride
/// apart. b: (depth, kTileColumns) with rows b_stride apart.
template <int64_t kRows, int64_t kVectors, bool kPacked>
HWY_NOINLINE void tile(int64_t depth, const float* HWY_RESTRICT a, int64_t a_stride,
                       const float* HWY_RESTRICT b, int64_t b_stride, const GemmTile& c) {
  const Floats d;
  Vector sums[kRows][kVectors];
  HWY_UNROLL(16)
  for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
  for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  for (int64_t i = 0; i < c.rows; ++i) hwy::Prefetch(c.data + i * c.row_stride);
  const float* left[kRows];  // rows that c does not have are copies of its last one
  if constexpr (!kPacked)
    for (int64_t i = 0; i < kRows; ++i) left[i] = a + std::min(i, c.rows - 1) * a_stride;

  for (int64_t p = 0; p < depth; ++p, b += b_stride) {
    Vector right[kVectors];
    HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) {
      const Vector factor = hn::Set(d, kPacked ? a[p * kTileRows + i] : left[i][p]);
      HWY_UNROLL(2)
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, right[v], sums[i][v]);
    }
  }

  if (c.rows == kRows && c.columns == kVectors * kLanes && c.column_stride == 1) {
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) {
      float* to = c.data + i * c.row_stride + v * kLanes;
      hn::StoreU(c.add ? hn::Add(hn::LoadU(d, to), sums[i][v]) : sums[i][v], d, to);
    }
  } else {
    HWY_ALIGN float whole[kRows * kVectors * kLanes];
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[i][v], d, whole + (i * kVectors + v) * kLanes);
    for (int64_t i = 0; i < c.rows; ++i)
      for (int64_t j = 0; j < c.columns; ++j) {
        float& to = c.data[i * c.row_stride + j * c.column_stride];
        const float sum = whole[i * kVectors * kLanes + j];
        to = c.add ? to + sum : sum;
      }
  }
}

void multiply(int64_t depth, const GemmLeft& a, const GemmRight& b, const GemmTile& c) {
  // By rows (a third, two thirds, all) and by columns (one vector, two): the last tiles waste less.
  using Tile = decltype(&tile<kTileRows, kTileVectors, true>);
  constexpr int64_t kThird = kTileRows / 3;
  static constexpr Tile kTiles[2][3][2] = {{{tile<kThird, 1, false>, tile<kThird, 2, false>},
                                            {tile<2 * kThird, 1, false>, tile<2 * kThird, 2, false>},
                                            {tile<kTileRows, 1, false>, tile<kTileRows, 2, false>}},
                                           {{tile<kThird, 1, true>, tile<kThird, 2, true>},
                                            {tile<2 * kThird, 1, true>, tile<2 * kThird, 2, true>},
                                            {tile<kTileRows, 1, true>, tile<kTileRows, 2, true>}}};
  for (int64_t j = 0; j < c.columns; j += kTileColumns) {
    const int64_t width = std::min(kTileColumns, c.columns - j);
    for (int64_t i = 0; i < c.rows; i += kTileRows) {
      const int64_t height = std::min(kTileRows, c.rows - i);
      kTiles[a.packed ? 1 : 0][(height - 1) / kThird][(width - 1) / kLanes](
          depth, a.data + i * (a.packed ? depth : a.row_stride), a.row_stride,
          b.data + j / kTileColumns * b.tile_stride, b.row_stride, c.part(i, j, height, width));
    }
  }
}

// ---- thin products

// Columns and rows of a tile of dot products: 4 x 4 sums and what they are made of fit 32 registers.
constexpr int64_t kDotColumns = 4, kDotRows = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;

/// kRows x kColumns dot products along contiguous rows of a and columns of b.
template <int64_t kRows, int64_t kColumns, typename T>
HWY_INLINE void dot_tile(int64_t depth, const float* a, int64_t a_stride, const T* b, int64_t b_stride,
                         const GemmTile& c) {
  const Floats d;
  Vector sums[kRows][kColumns];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  int64_t p = 0;
  for (; p + kLanes <= depth; p += kLanes) {
    Vector left[kRows];
    for (int64_t i = 0; i < kRows; ++i) left[i] = hn::LoadU(d, a + i * a_stride + p);
    for (int64_t j = 0; j < kColumns; ++j) {
      const Vector right = load(d, b + j * b_stride + p);
      for (int64_t i = 0; i < kRows; ++i) sums[i][j] = hn::MulAdd(left[i], right, sums[i][j]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
      for (int64_t q = p; q < depth; ++q) sum += a[i * a_stride + q] * load_one(b + j * b_stride + q);
      c.data[i * c.row_stride + j * c.column_stride] = sum;
    }
}

void dots(int64_t depth, const GemmLeft& a, const Strip& strip, const GemmTile& c) {
  with_type(strip, [&](const auto* b) {
    // The columns of b come from the cache after the first rows.
    const auto rows_of = [&]<int64_t kRows, int64_t kColumns>(int64_t& i, int64_t j) {
      for (; i + kRows <= c.rows; i += kRows)
        dot_tile<kRows, kColumns>(depth, a.data + i * a.row_stride, a.row_stride, b + j * strip.lane_stride,
                                  strip.lane_stride, c.from(i, j));
    };
    int64_t j = 0;
    for (; j + kDotColumns <= c.columns; j += kDotColumns) {
      int64_t i = 0;
      rows_of.template operator()<kDotRows, kDotColumns>(i, j);
      if constexpr (kDotRows > 3) rows_of.template operator()<3, kDotColumns>(i, j);
      rows_of.template operator()<2, kDotColumns>(i, j);
      rows_of.template operator()<1, kDotColumns>(i, j);
    }
    for (; j < c.columns; ++j) {
      int64_t i = 0;
      rows_of.template operator()<1, 1>(i, j);
    }
  });
}

/// sums[i, j] += sum over kDepth rows of b. Vectors, then single lanes with the same rounding.
template <int64_t kRows, int64_t kDepth, typename T>
HWY_NOINLINE void axpy_rows(int64_t columns, const float* a, int64_t a_stride, const T* b, int64_t b_stride,
                            float* sums) {
  const auto step = [&](auto d, int64_t j) HWY_ATTR {
    hn::Vec<decltype(d)> right[kDepth];
    for (int64_t q = 0; q < kDepth; ++q) right[q] = load(d, b + q * b_stride + j);
    for (int64_t i = 0; i < kRows; ++i) {
      auto sum = hn::LoadU(d, sums + i * kAxpyStride + j);
      for (int64_t q = 0; q < kDepth; ++q) sum = hn::MulAdd(hn::Set(d, a[i * a_stride + q]), right[q], sum);
      hn::StoreU(sum, d, sums + i * kAxpyStride + j);
    }
  };
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) step(Floats(), j);
  for (; j < columns; ++j) step(hn::CappedTag<float, 1>(), j);
}

void axpys(int64_t depth, const GemmLeft& a, const Strip& strip, float* sums, const GemmTile& c) {
  // kDepth rows of b, times the rows of a: b comes from memory for the first of them only.
  const auto all_rows = [&]<int64_t kDepth>(int64_t width, int64_t p, const auto* b) {
    int64_t i = 0;
    const auto some = [&]<int64_t kRows>() {
      for (; i + kRows <= c.rows; i += kRows)
        axpy_rows<kRows, kDepth>(width, a.data + i * a.row_stride + p, a.row_stride,
                                 b + p * strip.depth_stride, strip.depth_stride, sums + i * kAxpyStride);
    };
    some.template operator()<4>();
    some.template operator()<3>();
    some.template operator()<2>();
    some.template operator()<1>();
  };
  with_type(strip, [&](const auto* b) {
    for (int64_t j = 0; j < c.columns; j += kAxpyColumns) {
      const int64_t width = std::min(kAxpyColumns, c.columns - j);
      for (int64_t i = 0; i < c.rows; ++i) std::fill_n(sums + i * kAxpyStride, width, 0.0f);
      int64_t p = 0;
      for (; p + 4 <= depth; p += 4) all_rows.template operator()<4>(width, p, b + j);
      for (; p < depth; ++p) all_rows.template operator()<1>(width, p, b + j);
      for (int64_t i = 0; i < c.rows; ++i)
        for (int64_t q = 0; q < width; ++q)
          c.data[i * c.row_stride + (j + q) * c.column_stride] = sums[i * kAxpyStride + q];
    }
  });
}

const GemmTarget* target() {
  static constexpr GemmTarget kTarget{
      kLanes, kTileRows, kTileColumns, pack<kTileRows>, pack<kTileColumns>, multiply, copy, dots, axpys};
  return &kTarget;
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(target);

const GemmTarget& gemm_target() {
  return *HWY_DYNAMIC_DISPATCH(target)();
}

}  // namespace weft::cpu
#endif
