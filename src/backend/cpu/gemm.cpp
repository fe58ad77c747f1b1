// Matrix product after Goto & van de Geijn: blocks of b are packed once and shared by the threads, blocks of
// a are packed by the thread that uses them, and a tile of c stays in registers while k runs. Products with a
// thin side are bound by memory: they read the big operand in place, once (dots, axpys).

// Baseline, AVX2, AVX-512 and NEON; each target is another compilation of the first half of this file.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <type_traits>

#include "array/half.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_parts.h"
#include "base/error.h"

#ifndef WEFT_CPU_GEMM_ONCE
#define WEFT_CPU_GEMM_ONCE
namespace weft::cpu {

/// `width` lanes of `depth` elements each: how packing and the thin products see an operand.
struct Strip {
  const std::byte* data;
  DType dtype;
  int64_t lane_stride, depth_stride;
};

// Columns that axpys sums at a time: long runs of b's rows, 1024 halves the bandwidth.
constexpr int64_t kAxpyColumns = 2048;

/// What each target provides.
struct GemmTarget {
  int64_t lanes;                    // of a vector
  int64_t tile_rows, tile_columns;  // of c in registers
  /// out[panel][p][lane]: panels of tile_rows (a) or tile_columns (b) lanes, the last one filled up with 0.
  void (*pack_a)(const Strip& a, int64_t lanes, int64_t depth, float* out);
  void (*pack_b)(const Strip& b, int64_t lanes, int64_t depth, float* out);
  /// c (+)= a b with a packed, and b too or whole vectors of it in place.
  void (*multiply)(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b,
                   int64_t b_stride, int64_t b_tile, float* c, int64_t c_stride, bool add);
  /// out[lane][p], contiguous.
  void (*copy)(const Strip& strip, int64_t lanes, int64_t depth, float* out);
  /// c[i, j] = sum over p of a[i, p] b[p, j] for few i; a is (rows, depth) contiguous, c has any strides.
  /// dots needs b.depth_stride 1, axpys b.lane_stride 1.
  void (*dots)(int64_t rows, int64_t columns, int64_t depth, const float* a, const Strip& b, float* c,
               int64_t c_row, int64_t c_column);
  void (*axpys)(int64_t rows, int64_t columns, int64_t depth, const float* a, const Strip& b,
                float* sums /* (rows, kAxpyColumns) */, float* c, int64_t c_row, int64_t c_column);
};

}  // namespace weft::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// 12 x 2 vectors of c, 2 of b and a broadcast fit 32 registers; 6 x 2 fit 16.
constexpr int64_t kTileVectors = 2, kTileColumns = kTileVectors * kLanes;
constexpr int64_t kTileRows = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64 ? 12 : 6;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), from));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::float16_t* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), from));
#else  // Highway 1.0.3 emulates without infinities and NaN
  const hn::RebindToUnsigned<D> words;
  const auto bits =
      hn::PromoteTo(words, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
  const auto rest = hn::And(bits, hn::Set(words, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000u)));
  // The multiplication moves the exponent and makes subnormals normal; exact.
  const auto finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(rest)), hn::Set(d, 0x1p112f));
  const auto special =
      hn::Gt(hn::BitCast(hn::RebindToSigned<D>(), rest), hn::Set(hn::RebindToSigned<D>(), 0x7bff));
  const auto exponent = hn::IfThenElseZero(hn::RebindMask(words, special), hn::Set(words, 0x7f800000u));
  return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(words, finite), exponent), sign));
#endif
}

HWY_INLINE float load_one(const float* from) {
  return *from;
}
HWY_INLINE float load_one(const hwy::bfloat16_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bfloat_to_float(bits);
}
HWY_INLINE float load_one(const hwy::float16_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return half_to_float(bits);
}

/// body(typed pointer) for the three float types.
template <typename Body>
HWY_INLINE void with_type(const Strip& strip, const Body& body) {
  switch (strip.dtype) {
    case DType::f16:
      return body(reinterpret_cast<const hwy::float16_t*>(strip.data));
    case DType::bf16:
      return body(reinterpret_cast<const hwy::bfloat16_t*>(strip.data));
    default:
      return body(reinterpret_cast<const float*>(strip.data));
  }
}

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

void copy(const Strip& strip, int64_t lanes, int64_t depth, float* out) {
  with_type(strip, [&](const auto* from) {
    for (int64_t lane = 0; lane < lanes; ++lane, from += strip.lane_stride, out += depth)
      if (strip.depth_stride == 1)
        convert(from, depth, out);
      else
        for (int64_t p = 0; p < depth; ++p) out[p] = load_one(from + p * strip.depth_stride);
  });
}

// ---- product of packed blocks

/// One tile of c in registers: a (depth, kTileRows), b (depth, kTileColumns) with rows b_stride apart.
template <int64_t kRows, int64_t kVectors>
HWY_NOINLINE void tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                       int64_t b_stride, float* HWY_RESTRICT c, int64_t c_stride, int64_t rows,
                       int64_t columns, bool add) {
  const Floats d;
  Vector sums[kRows][kVectors];
  HWY_UNROLL(16)
  for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
  for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = hn::Zero(d);
  for (int64_t i = 0; i < rows; ++i) hwy::Prefetch(c + i * c_stride);

  for (int64_t p = 0; p < depth; ++p, a += kTileRows, b += b_stride) {
    Vector right[kVectors];
    HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) {
      const Vector left = hn::Set(d, a[i]);
      HWY_UNROLL(2)
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
  }

  if (rows == kRows && columns == kVectors * kLanes) {
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) {
      float* to = c + i * c_stride + v * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sums[i][v]) : sums[i][v], d, to);
    }
  } else {
    HWY_ALIGN float whole[kRows * kVectors * kLanes];
    HWY_UNROLL(16)
    for (int64_t i = 0; i < kRows; ++i) HWY_UNROLL(2)
    for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[i][v], d, whole + (i * kVectors + v) * kLanes);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const float sum = whole[i * kVectors * kLanes + j];
        c[i * c_stride + j] = add ? c[i * c_stride + j] + sum : sum;
      }
  }
}

/// The tiles of b are b_tile apart.
void multiply(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b, int64_t b_stride,
              int64_t b_tile, float* c, int64_t c_stride, bool add) {
  // By rows (a third, two thirds, all) and by columns (one vector, two): the last tiles waste less.
  using Tile = decltype(&tile<kTileRows, kTileVectors>);
  constexpr int64_t kThird = kTileRows / 3;
  static constexpr Tile kTiles[3][2] = {{tile<kThird, 1>, tile<kThird, 2>},
                                        {tile<2 * kThird, 1>, tile<2 * kThird, 2>},
                                        {tile<kTileRows, 1>, tile<kTileRows, 2>}};
  for (int64_t j = 0; j < columns; j += kTileColumns, b += b_tile) {
    const int64_t width = std::min(kTileColumns, columns - j);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const int64_t height = std::min(kTileRows, rows - i);
      kTiles[(height - 1) / kThird][(width - 1) / kLanes](depth, a + i * depth, b, b_stride,
                                                          c + i * c_stride + j, c_stride, height, width, add);
    }
  }
}

// ---- thin products

constexpr int64_t kDotColumns = 4;

/// kRows x kColumns dot products along contiguous rows of a and columns of b.
template <int64_t kRows, int64_t kColumns, typename T>
HWY_INLINE void dot_tile(int64_t depth, const float* a, const T* b, int64_t b_stride, float* c, int64_t c_row,
                         int64_t c_column) {
  const Floats d;
  Vector sums[kRows][kColumns];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  int64_t p = 0;
  for (; p + kLanes <= depth; p += kLanes) {
    Vector left[kRows];
    for (int64_t i = 0; i < kRows; ++i) left[i] = hn::LoadU(d, a + i * depth + p);
    for (int64_t j = 0; j < kColumns; ++j) {
      const Vector right = load(d, b + j * b_stride + p);
      for (int64_t i = 0; i < kRows; ++i) sums[i][j] = hn::MulAdd(left[i], right, sums[i][j]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
      for (int64_t q = p; q < depth; ++q) sum += a[i * depth + q] * load_one(b + j * b_stride + q);
      c[i * c_row + j * c_column] = sum;
    }
}

void dots(int64_t rows, int64_t columns, int64_t depth, const float* a, const Strip& strip, float* c,
          int64_t c_row, int64_t c_column) {
  with_type(strip, [&](const auto* b) {
    int64_t j = 0;
    // Pairs of rows: the columns of b come from the cache after the first pair.
    for (; j + kDotColumns <= columns; j += kDotColumns) {
      const auto* right = b + j * strip.lane_stride;
      int64_t i = 0;
      for (; i + 2 <= rows; i += 2)
        dot_tile<2, kDotColumns>(depth, a + i * depth, right, strip.lane_stride, c + i * c_row + j * c_column,
                                 c_row, c_column);
      if (i < rows)
        dot_tile<1, kDotColumns>(depth, a + i * depth, right, strip.lane_stride, c + i * c_row + j * c_column,
                                 c_row, c_column);
    }
    for (; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i)
        dot_tile<1, 1>(depth, a + i * depth, b + j * strip.lane_stride, strip.lane_stride,
                       c + i * c_row + j * c_column, c_row, c_column);
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
      auto sum = hn::LoadU(d, sums + i * kAxpyColumns + j);
      for (int64_t q = 0; q < kDepth; ++q) sum = hn::MulAdd(hn::Set(d, a[i * a_stride + q]), right[q], sum);
      hn::StoreU(sum, d, sums + i * kAxpyColumns + j);
    }
  };
  int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) step(Floats(), j);
  for (; j < columns; ++j) step(hn::CappedTag<float, 1>(), j);
}

void axpys(int64_t rows, int64_t columns, int64_t depth, const float* a, const Strip& strip, float* sums,
           float* c, int64_t c_row, int64_t c_column) {
  // kDepth rows of b, times the rows of a in pairs: b comes from memory for the first pair only.
  const auto all_rows = [&]<int64_t kDepth>(int64_t width, int64_t p, const auto* b) {
    const auto* right = b + p * strip.depth_stride;
    int64_t i = 0;
    for (; i + 2 <= rows; i += 2)
      axpy_rows<2, kDepth>(width, a + i * depth + p, depth, right, strip.depth_stride,
                           sums + i * kAxpyColumns);
    if (i < rows)
      axpy_rows<1, kDepth>(width, a + i * depth + p, depth, right, strip.depth_stride,
                           sums + i * kAxpyColumns);
  };
  with_type(strip, [&](const auto* b) {
    for (int64_t j = 0; j < columns; j += kAxpyColumns) {
      const int64_t width = std::min(kAxpyColumns, columns - j);
      for (int64_t i = 0; i < rows; ++i) std::fill_n(sums + i * kAxpyColumns, width, 0.0f);
      int64_t p = 0;
      for (; p + 4 <= depth; p += 4) all_rows.template operator()<4>(width, p, b + j);
      for (; p < depth; ++p) all_rows.template operator()<1>(width, p, b + j);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t q = 0; q < width; ++q) c[i * c_row + (j + q) * c_column] = sums[i * kAxpyColumns + q];
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
namespace {

HWY_EXPORT(target);

// Elements. A block of a (kRowBlock x kDepthBlock: 216 KiB) stays in L2, one of b in L3.
constexpr int64_t kDepthBlock = 384, kRowBlock = 144, kColumnBlock = 1024;
// Rows of one PackedProduct, its tasks per block, and the threads it plans for.
constexpr int64_t kMaxRows = 256 * kRowBlock, kMaxTasks = 512, kMaxThreads = 64;
constexpr int64_t kThinGrain = 16;  // columns; a multiple of what dots takes at once
// Rows (or columns) up to which packing the other side does not pay: 1.4x at 16 rows of 4096 x 4096.
constexpr int64_t kThin = 16;
constexpr int64_t kParallelThinWork = 1 << 18;  // as kParallelWork, for thin products

thread_local Scratch scratch_a, scratch_b;

Strip rows_of(const GemmOperand& a, int64_t row, int64_t column) {
  return {element(a, row, column), a.dtype, a.row_stride, a.column_stride};
}

Strip columns_of(const GemmOperand& b, int64_t row, int64_t column) {
  return {element(b, row, column), b.dtype, b.column_stride, b.row_stride};
}

/// The share of `part` of `parts` when [0, count) is cut evenly at multiples of `unit`.
struct Range {
  Range(int64_t count, int64_t unit, int64_t part, int64_t parts)
      : begin(std::min(count, ceil_div(count, unit) * part / parts * unit)),
        end(std::min(count, ceil_div(count, unit) * (part + 1) / parts * unit)) {}
  int64_t size() const { return end - begin; }
  int64_t begin, end;
};

/// A thread that waits here waits for work that another thread has begun, so it is short.
template <typename Done>
void spin_until(const Done& done) {
  for (int turns = 0; !done(); ++turns) {
    if (turns < 1000)
      hwy::Pause();
    else
      std::this_thread::yield();
  }
}

void multiply_packed(const GemmTarget& target, int64_t rows, int64_t columns, int64_t depth, const float* a,
                     const float* b, float* c, int64_t c_stride, bool add) {
  const int64_t width = target.tile_columns;
  target.multiply(rows, columns, depth, a, b, width, width * depth, c, c_stride, add);
}

/// One block of each, too small for threads: no plan, and b stays where it is if it can.
void small_product(const GemmTarget& target, int64_t m, int64_t n, int64_t k, const GemmOperand& a,
                   const GemmOperand& b, float* c, int64_t c_stride) {
  const int64_t width = target.tile_columns;
  float* packed_a = scratch_a.floats((m + target.tile_rows) * k);
  target.pack_a(rows_of(a, 0, 0), m, k, packed_a);
  int64_t in_place = 0;  // columns
  if (b.dtype == DType::f32 && b.column_stride == 1) {
    in_place = n - n % target.lanes;
    target.multiply(m, in_place, k, packed_a, reinterpret_cast<const float*>(b.data), b.row_stride, width, c,
                    c_stride, false);
  }
  if (in_place == n) return;
  float* packed_b = scratch_b.floats((n - in_place + width) * k);
  target.pack_b(columns_of(b, 0, in_place), n - in_place, k, packed_b);
  multiply_packed(target, m, n - in_place, k, packed_a, packed_b, c + in_place, c_stride, false);
}

/// The packed product as a list of tasks that one for_each hands out in order: for each block of (columns, k)
/// first `packs` tasks that pack b, then `tiles` tasks that each pack a part of a and multiply. A task waits
/// for what it needs of earlier tasks; those have been handed out before, so the waits end. That spares a
/// sleep and a wake-up between the phases, which would cost more than the product of 256 x 256.
class PackedProduct {
 public:
  PackedProduct(const GemmTarget& target, int64_t threads, int64_t m, int64_t n, int64_t k,
                const GemmOperand& a, const GemmOperand& b, float* c, int64_t c_stride)
      : target_(target), m_(m), n_(n), k_(k), a_(a), b_(b), c_(c), c_stride_(c_stride) {
    column_blocks_ = ceil_div(n, kColumnBlock);
    depth_blocks_ = ceil_div(k, kDepthBlock);
    const int64_t columns =
        std::min(n, (ceil_div(ceil_div(n, target.tile_columns), column_blocks_))*target.tile_columns);
    const int64_t units = ceil_div(m, target.tile_rows), panels = ceil_div(columns, target.tile_columns);
    row_tiles_ = ceil_div(m, kRowBlock);
    if (threads > 1) {  // enough tasks that a late thread does not hold up the others
      row_tiles_ = std::min(units, ceil_div(std::max(row_tiles_, 4 * threads), threads) * threads);
      column_tiles_ = std::min(panels, ceil_div(4 * threads, row_tiles_));
      packs_ = std::min(panels, 4 * threads);
    }
    buffer_size_ = panels * target.tile_columns * ceil_div(k, depth_blocks_);
    buffer_ = scratch_b.floats(buffer_size_ * (blocks() > 1 ? 2 : 1));
  }

  int64_t task_count() const { return blocks() * (packs_ + tiles()); }

  void run(int64_t task) {
    const int64_t block = task / (packs_ + tiles()), step = task % (packs_ + tiles());
    if (step < packs_)
      pack(block, step);
    else
      multiply(block, step - packs_);
  }

 private:
  int64_t blocks() const { return column_blocks_ * depth_blocks_; }
  int64_t tiles() const { return row_tiles_ * column_tiles_; }
  Range columns_of_block(int64_t block) const {
    return {n_, target_.tile_columns, block / depth_blocks_, column_blocks_};
  }
  Range depth_of_block(int64_t block) const { return {k_, 1, block % depth_blocks_, depth_blocks_}; }
  float* buffer(int64_t block) const { return buffer_ + (block % 2) * buffer_size_; }

  void pack(int64_t block, int64_t part) {
    // The buffer was last read by the block before the previous one.
    for (int64_t t = 0; t < tiles(); ++t)
      spin_until([&] { return done_[static_cast<size_t>(t)].load(std::memory_order_acquire) >= block - 1; });
    const Range columns = columns_of_block(block), depth = depth_of_block(block);
    const Range share(columns.size(), target_.tile_columns, part, packs_);
    if (share.size() > 0)
      target_.pack_b(columns_of(b_, depth.begin, columns.begin + share.begin), share.size(), depth.size(),
                     buffer(block) + share.begin * depth.size());
    packed_[block % 2].fetch_add(1, std::memory_order_acq_rel);
  }

  void multiply(int64_t block, int64_t tile) {
    const Range columns = columns_of_block(block), depth = depth_of_block(block);
    const Range rows(m_, target_.tile_rows, tile / column_tiles_, row_tiles_);
    const Range share(columns.size(), target_.tile_columns, tile % column_tiles_, column_tiles_);
    float* a = scratch_a.floats(ceil_div(rows.size(), target_.tile_rows) * target_.tile_rows * depth.size());
    target_.pack_a(rows_of(a_, rows.begin, depth.begin), rows.size(), depth.size(), a);
    spin_until(
        [&] { return packed_[block % 2].load(std::memory_order_acquire) >= (block / 2 + 1) * packs_; });
    std::atomic<int64_t>& done = done_[static_cast<size_t>(tile)];
    spin_until([&] { return done.load(std::memory_order_acquire) >= block; });  // the sums of c so far
    if (share.size() > 0)
      multiply_packed(target_, rows.size(), share.size(), depth.size(), a,
                      buffer(block) + share.begin * depth.size(),
                      c_ + rows.begin * c_stride_ + columns.begin + share.begin, c_stride_, depth.begin > 0);
    done.store(block + 1, std::memory_order_release);
  }

  const GemmTarget& target_;
  const int64_t m_, n_, k_;
  const GemmOperand &a_, &b_;
  float* const c_;
  const int64_t c_stride_;
  int64_t column_blocks_, depth_blocks_;
  int64_t row_tiles_, column_tiles_ = 1, packs_ = 1;
  float* buffer_;  // two blocks of packed b
  int64_t buffer_size_;
  std::array<std::atomic<int64_t>, 2> packed_{};        // pack tasks done, by parity of the block
  std::array<std::atomic<int64_t>, kMaxTasks> done_{};  // blocks done, by tile
};

/// c (rows, columns) = small (rows lanes) large (columns lanes), reading `large` in place. False when the
/// shape or the strides do not suit.
bool thin_product(ThreadPool& pool, const GemmTarget& target, int64_t rows, int64_t columns, int64_t depth,
                  const Strip& small, const Strip& large, float* c, int64_t c_row, int64_t c_column) {
  if (rows > kThin) return false;
  const bool along_depth = large.depth_stride == 1 && depth >= 32;
  // In the cache, tiles of more rows are faster (small_product).
  const bool along_columns =
      large.lane_stride == 1 && columns >= 32 && (rows <= 4 || columns * depth >= 1 << 18);
  if (!along_depth && !along_columns) return false;

  const float* a = reinterpret_cast<const float*>(small.data);
  if (small.dtype != DType::f32 || small.depth_stride != 1 || (rows > 1 && small.lane_stride != depth)) {
    float* copied = scratch_a.floats(rows * depth);
    target.copy(small, rows, depth, copied);
    a = copied;
  }
  const int64_t size = static_cast<int64_t>(size_of(large.dtype));
  const auto piece = [&](size_t begin, size_t end) {
    const int64_t j = static_cast<int64_t>(begin), width = static_cast<int64_t>(end) - j;
    Strip part = large;
    part.data += j * large.lane_stride * size;
    float* to = c + j * c_column;
    if (along_depth)
      target.dots(rows, width, depth, a, part, to, c_row, c_column);
    else
      target.axpys(rows, width, depth, a, part, scratch_b.floats(rows * kAxpyColumns), to, c_row, c_column);
  };
  if (rows * columns * depth < kParallelThinWork || pool.threads() == 1) {
    piece(0, static_cast<size_t>(columns));
  } else {
    // dots: 32 Ki elements. axpys: long runs matter more than even shares.
    const int64_t grain =
        along_depth ? ceil_div(1 << 15, depth) : std::min(ceil_div(columns, pool.threads()), kAxpyColumns);
    pool.for_each(static_cast<size_t>(columns), static_cast<size_t>(ceil_div(grain, kThinGrain) * kThinGrain),
                  piece);
  }
  return true;
}

}  // namespace

void gemm(ThreadPool& pool, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
          float* c, int64_t c_stride) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * c_stride, n, 0.0f);
    return;
  }
  const GemmTarget& target = *HWY_DYNAMIC_DISPATCH(target)();
  // n thin: c^T = b^T a^T.
  if (thin_product(pool, target, m, n, k, rows_of(a, 0, 0), columns_of(b, 0, 0), c, c_stride, 1) ||
      thin_product(pool, target, n, m, k, columns_of(b, 0, 0), rows_of(a, 0, 0), c, 1, c_stride))
    return;

  if (m <= kRowBlock && k <= kDepthBlock && n <= kColumnBlock && m * n * k < kParallelWork)
    return small_product(target, m, n, k, a, b, c, c_stride);
  const bool parallel = m * n * k >= kParallelWork && pool.threads() > 1;
  const int64_t threads = parallel ? std::min<int64_t>(pool.threads(), kMaxThreads) : 1;
  for (int64_t row = 0; row < m; row += kMaxRows) {
    GemmOperand part = a;
    part.data = element(a, row, 0);
    PackedProduct product(target, threads, std::min(kMaxRows, m - row), n, k, part, b, c + row * c_stride,
                          c_stride);
    const int64_t tasks = product.task_count();
    if (parallel)
      pool.for_each(static_cast<size_t>(tasks), 1,
                    [&](size_t task, size_t) { product.run(static_cast<int64_t>(task)); });
    else
      for (int64_t task = 0; task < tasks; ++task) product.run(task);
  }
}

}  // namespace weft::cpu
#endif
