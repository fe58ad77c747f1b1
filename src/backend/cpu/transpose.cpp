// Blocks of a matrix, columns to rows, for each target.

// Baseline, AVX2, AVX-512 and NEON; each target is another compilation of this file.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/transpose.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Most bytes of a vector: a square of them is at most half of the registers, or as many as there are where
/// its vectors are whole lines, which need no buffer.
template <typename U>
constexpr size_t most_bytes() {
  if (HWY_TARGET == HWY_AVX3) return sizeof(U) > 1 ? 64 : 16;
  return sizeof(U) < 4 ? 16 : 8 * sizeof(U);
}

/// A square of vectors in registers: out[i][j] = in[j][i]. Interleaving the halves of some rows, or taking
/// them apart, log2 of their number times transposes: first inside of units of 16 bytes, then the units,
/// because processors have instructions for that which are twice as fast as any shuffle.
template <typename U>
struct Square {
  static constexpr size_t kBytes =
      std::max<size_t>(16, std::min(hn::MaxLanes(hn::ScalableTag<uint8_t>()), most_bytes<U>()));
  static constexpr size_t kLanes = kBytes / sizeof(U), kUnit = 16 / sizeof(U), kUnits = kLanes / kUnit;
  using Vector [[gnu::vector_size(kBytes)]] = U;
  Vector rows[kLanes];

  void transpose() {
    for (size_t round = 1; round < kUnit; round *= 2) step<false>(std::make_index_sequence<kLanes>());
    for (size_t round = 1; round < kUnits; round *= 2) step<true>(std::make_index_sequence<kLanes>());
  }

 private:
  // Without a loop: GCC 12 keeps an array in registers only when every index is a constant from the start.
  template <bool whole_units, size_t... row>
  void step(std::index_sequence<row...> all) {
    const Vector next[] = {(whole_units ? parted<row>(all) : mixed<row>(all))...};
    ((rows[row] = next[row]), ...);
  }
  template <size_t row, size_t... lane>
  Vector mixed(std::index_sequence<lane...>) const {
    constexpr size_t kFirst = row / kUnit * kUnit + row % kUnit / 2;
    return __builtin_shufflevector(
        rows[kFirst], rows[kFirst + kUnit / 2],
        (lane / kUnit * kUnit + (row % 2 * kUnit + lane % kUnit) / 2 + lane % 2 * kLanes)...);
  }
  template <size_t row, size_t... lane>
  Vector parted(std::index_sequence<lane...>) const {
    constexpr size_t kHalf = std::max<size_t>(kUnits / 2, 1), kPart = row / kUnit / kHalf % 2;
    constexpr size_t kFirst = row / kUnit % kHalf * 2 % kUnits * kUnit + row % kUnit;
    return __builtin_shufflevector(rows[kFirst], rows[(kFirst + kUnit) % kLanes],
                                   ((2 * (lane / kUnit) + kPart) * kUnit + lane % kUnit)...);
  }
};

/// One row on. Rows are used strictly in their order: in the one that the compiler likes, from addresses that
/// it has found before, memory gives half as much.
template <typename U>
U* after(U* row, int64_t stride) {
  row += stride;
  asm volatile("" : "+r"(row) : : "memory");
  return row;
}

template <typename U>
void put_line(const void* line, U* to, bool is_streamed) {
  constexpr hn::ScalableTag<U> lanes;
  for (size_t i = 0; i < 64 / sizeof(U); i += hn::MaxLanes(lanes)) {
    const auto part = hn::LoadU(lanes, static_cast<const U*>(line) + i);
    is_streamed ? hn::Stream(part, lanes, to + i) : hn::StoreU(part, lanes, to + i);
  }
}

/// A square of elements whose rows are cache lines, through registers or through a buffer. Lines are stored
/// as soon as they are there: after those of their neighbours as well it is a third slower.
template <typename U>
void transpose_lines(const U* from, int64_t from_stride, U* to, int64_t to_stride, bool is_streamed) {
  constexpr int64_t kSide = 64 / sizeof(U), kLanes = Square<U>::kLanes;
  if constexpr (kLanes == kSide) {
    Square<U> square;
    for (int64_t q = 0; q < kLanes; ++q, from = after(from, from_stride))
      std::memcpy(&square.rows[q], from, Square<U>::kBytes);
    square.transpose();
    for (int64_t q = 0; q < kLanes; ++q, to = after(to, to_stride))
      put_line(&square.rows[q], to, is_streamed);
  } else {
    alignas(64) U buffer[kSide][kSide];
    for (int64_t j = 0; j < kSide; j += kLanes) {
      for (int64_t i = 0; i < kSide; i += kLanes) {
        Square<U> square;
        for (int64_t q = 0; q < kLanes; ++q)
          std::memcpy(&square.rows[q], from + (j + q) * from_stride + i, Square<U>::kBytes);
        square.transpose();
        for (int64_t q = 0; q < kLanes; ++q)
          std::memcpy(&buffer[i + q][j], &square.rows[q], Square<U>::kBytes);
      }
    }
    for (int64_t i = 0; i < kSide; ++i) put_line(buffer[i], to + i * to_stride, is_streamed);
  }
}

/// Goes along those rows of the input that become `kLines` cache lines of the output. Fetched ahead: kBlock
/// elements of each of them come into L2 while those before are used, in the order in which they lie. The
/// next rows must wait: lines whose addresses are a power of two apart drive each other out, in L1 even those
/// of one strip, in L2 those of more rows than 64 (1 MiB, rows of 16 KiB).
template <typename U, int64_t kLines, bool kAhead>
void transpose(const Transposition& block) {
  constexpr int64_t kSide = 64 / sizeof(U), kWidth = kLines * kSide, kBlock = 1024 / sizeof(U);
  const int64_t rows = block.rows, columns = block.columns, stride = block.from_stride;
  for (int64_t c = 0; c < columns; c += kWidth) {
    const U* from = static_cast<const U*>(block.from) + c * stride;
    U* to = static_cast<U*>(block.to) + c;
    const int64_t width = std::min(kWidth, columns - c);
    const U* next = from;
    int64_t ahead = 0;
    for (int64_t r = 0; r < rows; r += kSide) {
      const int64_t height = std::min(kSide, rows - r);
      const int64_t whole = height == kSide ? width / kSide * kSide : 0;  // columns that fill lines
      const U* source = from + r;
      U* target = to + r * block.to_stride;
      if (r % kBlock == 0) {  // behind the last block of these rows comes the first of the next ones
        next = r + kBlock < rows ? source + kBlock : from + kWidth * stride;
        ahead = 0;
      }
      for (int64_t j = 0; j < whole; j += kSide) {
        for (int64_t q = 0; kAhead && q < kSide; ++q) {
          __builtin_prefetch(next + ahead, 0, 2);
          ahead += kSide;
          if (ahead >= kBlock) {
            ahead = 0;
            next += stride;
          }
        }
        transpose_lines(source + j * stride, stride, target + j, block.to_stride, block.is_streamed);
      }
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = whole; j < width; ++j) target[i * block.to_stride + j] = source[j * stride + i];
    }
  }
}

template <typename U>
void transpose_elements(const Transposition& block) {
  if (block.is_streamed && block.follows_streams)
    transpose<U, 1, false>(block);
  else
    transpose<U, strip_lines(sizeof(U)), true>(block);
}

void transpose_bytes(size_t bytes, const Transposition& block) {
  if (bytes == 1) transpose_elements<uint8_t>(block);
  if (bytes == 2) transpose_elements<uint16_t>(block);
  if (bytes == 4) transpose_elements<uint32_t>(block);
  if (bytes == 8) transpose_elements<uint64_t>(block);
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(transpose_bytes);

void transpose_block(size_t bytes, const Transposition& block) {
  HWY_DYNAMIC_DISPATCH(transpose_bytes)(bytes, block);
}

}  // namespace weft::cpu
#endif
